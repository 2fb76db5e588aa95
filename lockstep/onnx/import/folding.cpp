#include "lockstep/onnx/import/folding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;

Fold* fold_of(const Node& node) {
  if (!node.domain.empty()) return nullptr;
  if (element_function(node) != nullptr) return folded_element;
  for (const auto& table : {folded_elements(), folded_shapes(), folded_reductions()})
    if (const auto found = std::ranges::find(table, node.type, &FoldRow::type);
        found != table.end())
      return found->fold;
  return nullptr;
}

}  // namespace

bool ConstantFolder::supports(const Node& node) { return fold_of(node) != nullptr; }

std::optional<Constant> ConstantFolder::fold(const Node& node,
                                             std::span<const Constant* const> inputs,
                                             std::size_t output, std::int64_t opset,
                                             std::string_view where) {
  Fold* const computes = fold_of(node);
  if (computes == nullptr || (output > 0 && node.type != "Split")) return std::nullopt;
  return computes({node, Attributes(node), inputs, output, opset, where, remaining_});
}

void Folding::spend(std::size_t elements) const {
  if (elements > remaining)
    throw Error(ErrorCategory::input, where, "expected constants that can be computed in memory",
                fmt::format("node \"{}\" ({}) creates too many", node.name, node.type));
  remaining -= elements;
}

std::size_t Folding::spend(const Shape& shape) const {
  std::size_t total = 1;
  for (const std::int64_t extent : shape)
    if (extent == 0) return 0;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || static_cast<std::size_t>(extent) > remaining / total) spend(remaining + 1);
    total *= static_cast<std::size_t>(extent);
  }
  spend(total);
  return total;
}

std::size_t size_of(const Shape& shape) {
  return static_cast<std::size_t>(model::element_count(shape));
}

std::vector<std::size_t> strides_of(const Shape& shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::size_t>(shape[axis]);
  return strides;
}

std::vector<std::size_t> element_offsets(const Shape& shape, std::size_t begin,
                                         const std::vector<std::ptrdiff_t>& steps) {
  std::vector<std::size_t> result;
  const std::size_t total = size_of(shape);
  result.reserve(total);
  Shape position(shape.size());
  auto place = static_cast<std::ptrdiff_t>(begin);
  for (std::size_t n = 0; n < total; ++n) {
    result.push_back(static_cast<std::size_t>(place));
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      place += steps[axis];
      if (++position[axis] < shape[axis]) break;
      place -= steps[axis] * static_cast<std::ptrdiff_t>(shape[axis]);
      position[axis] = 0;
    }
  }
  return result;
}

Constant gathered(const Constant& constant, Shape shape, const std::vector<std::size_t>& indices) {
  return visit_values(constant, [&](const auto& values) {
    std::remove_cvref_t<decltype(values)> result;
    result.reserve(indices.size());
    for (const std::size_t index : indices) result.push_back(values[index]);
    return make_constant(shape, std::move(result));
  });
}

std::optional<Shape> common_shape(const Constant& a, const Constant& b) {
  if (!a.shape_is_known()) return a.shape;
  if (!b.shape_is_known()) return b.shape;
  const Shape& longer = a.shape.size() >= b.shape.size() ? a.shape : b.shape;
  const Shape& other = a.shape.size() >= b.shape.size() ? b.shape : a.shape;
  Shape shape = longer;
  const std::size_t more = longer.size() - other.size();
  for (std::size_t axis = 0; axis < other.size(); ++axis) {
    std::int64_t& extent = shape[more + axis];
    if (extent == 1)
      extent = other[axis];
    else if (other[axis] != 1 && other[axis] != extent)
      return std::nullopt;
  }
  return shape;
}

Folded equal_element(const Folding& f, const Constant& constant) {
  return visit_values(constant, [&](const auto& values) -> Folded {
    f.spend(values.size());
    if (values.empty() || std::ranges::count(values, values.front()) != std::ssize(values))
      return std::nullopt;
    return make_constant(Shape(), std::remove_cvref_t<decltype(values)>{values.front()});
  });
}

Folded expanded(const Folding& f, const Constant& constant, const Shape& shape) {
  if (constant.shape == shape) return constant;
  if (std::ranges::find(shape, kSampleCount) != shape.end()) {
    const Folded one = equal_element(f, constant);
    return one ? Folded(reshaped(*one, shape)) : std::nullopt;
  }
  if (constant.has_batch() || shape.size() > 16) return std::nullopt;
  f.spend(shape);
  std::vector<std::ptrdiff_t> steps(shape.size());
  const std::vector<std::size_t> strides = strides_of(constant.shape);
  const std::size_t more = shape.size() - constant.shape.size();
  for (std::size_t axis = 0; axis < constant.shape.size(); ++axis)
    if (constant.shape[axis] != 1) steps[more + axis] = static_cast<std::ptrdiff_t>(strides[axis]);
  return gathered(constant, shape, element_offsets(shape, 0, steps));
}

}  // namespace lockstep::inline v0::onnx
