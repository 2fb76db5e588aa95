#include "lockstep/onnx/constant.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"

namespace lockstep::onnx {
namespace {

using model::Shape;
using Inputs = std::span<const Constant* const>;

template <typename Element>
std::vector<Element> elements_of(const std::string& bytes) {
  std::vector<Element> values(bytes.size() / sizeof(Element));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(Element));
  return values;
}

template <typename Element>
Constant make(Shape shape, std::vector<Element> values, bool is_uniform = false) {
  return {.shape = std::move(shape),
          .values = std::make_shared<const std::vector<Element>>(std::move(values)),
          .is_uniform = is_uniform};
}

template <typename From>
Constant integers_of(const Tensor& tensor) {
  const std::vector<From> values = elements_of<From>(tensor.bytes);
  return make(tensor.shape, std::vector<std::int64_t>(values.begin(), values.end()));
}

template <typename Half>
Constant widened(const Tensor& tensor) {
  const std::vector<Half> values = elements_of<Half>(tensor.bytes);
  std::vector<float> wide(values.size());
  widen(values, wide);
  return make(tensor.shape, std::move(wide));
}

bool has_batch(const Shape& shape) { return std::ranges::find(shape, kSampleCount) != shape.end(); }

std::size_t size_of(const Shape& shape) {
  return static_cast<std::size_t>(model::element_count(shape));
}

/// Calls function(values) with the vector of elements.
template <typename Function>
auto visit_values(const Constant& constant, const Function& function) {
  return std::visit([&](const auto& values) { return function(*values); }, constant.values);
}

/// `constant` with elements from the places that `indices` lists.
Constant picked(const Constant& constant, Shape shape, const std::vector<std::size_t>& indices) {
  return visit_values(constant, [&](const auto& values) {
    std::remove_cvref_t<decltype(values)> result;
    result.reserve(indices.size());
    for (const std::size_t index : indices) result.push_back(values[index]);
    return make(shape, std::move(result));
  });
}

Constant reshaped(Constant constant, Shape shape) {
  constant.shape = std::move(shape);
  return constant;
}

/// Elements between neighbors along each axis.
std::vector<std::size_t> strides_of(const Shape& shape) {
  std::vector<std::size_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::size_t>(shape[axis]);
  return strides;
}

/// The places in an array, of which those at `steps` along each axis are read, from `begin` on.
std::vector<std::size_t> places(const Shape& shape, std::size_t begin,
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

std::optional<Constant> transpose(const Node& node, const Constant& input) {
  const std::size_t rank = input.shape.size();
  std::vector<std::int64_t> order = Attributes(node).integers("perm").value_or(Shape());
  if (order.empty())
    for (std::size_t axis = rank; axis-- > 0;) order.push_back(static_cast<std::int64_t>(axis));
  std::vector<bool> seen(rank);
  if (order.size() != rank) return std::nullopt;
  const std::vector<std::size_t> strides = strides_of(input.shape);
  Shape shape;
  std::vector<std::ptrdiff_t> steps;
  for (const std::int64_t axis : order) {
    const auto index = static_cast<std::size_t>(axis);
    if (axis < 0 || index >= rank || seen[index]) return std::nullopt;
    seen[index] = true;
    shape.push_back(input.shape[index]);
    steps.push_back(static_cast<std::ptrdiff_t>(strides[index]));
  }
  return picked(input, shape, places(shape, 0, steps));
}

const std::vector<std::int64_t>* integers_at(Inputs inputs, std::size_t index) {
  return index < inputs.size() && inputs[index] != nullptr ? inputs[index]->integers() : nullptr;
}

std::optional<Constant> slice(const Constant& input, Inputs inputs) {
  const std::size_t rank = input.shape.size();
  const auto* const starts = integers_at(inputs, 1);
  const auto* const ends = integers_at(inputs, 2);
  const auto* const axes = integers_at(inputs, 3);
  const auto* const steps = integers_at(inputs, 4);
  if (starts == nullptr || ends == nullptr || starts->size() != ends->size() ||
      (axes != nullptr && axes->size() != starts->size()) ||
      (steps != nullptr && steps->size() != starts->size()))
    return std::nullopt;
  const std::vector<std::size_t> strides = strides_of(input.shape);
  Shape shape = input.shape;
  std::size_t begin = 0;
  std::vector<std::ptrdiff_t> distances(strides.begin(), strides.end());
  std::vector<bool> seen(rank);
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const auto axis = axis_of(axes != nullptr ? (*axes)[i] : static_cast<std::int64_t>(i), rank);
    const std::int64_t step = steps != nullptr ? (*steps)[i] : 1;
    if (!axis || seen[*axis] || (step != 1 && step != -1)) return std::nullopt;
    seen[*axis] = true;
    const std::int64_t extent = input.shape[*axis];
    // Backwards, the first is at most the last element, and the end may be before element 0.
    const std::int64_t before = step < 0 ? -1 : 0;
    const auto clamped = [&](std::int64_t place, std::int64_t least) {
      if (place < 0) place = place < -extent ? least : place + extent;
      return std::clamp(place, least, std::max(extent + before, least));
    };
    const std::int64_t first = clamped((*starts)[i], 0);
    const std::int64_t end = clamped((*ends)[i], before);
    shape[*axis] = std::max<std::int64_t>((end - first) * step, 0);
    if (extent > 0) begin += static_cast<std::size_t>(first) * strides[*axis];
    distances[*axis] *= static_cast<std::ptrdiff_t>(step);
  }
  return picked(input, shape, places(shape, begin, distances));
}

std::optional<Constant> gather(const Node& node, const Constant& input, Inputs inputs) {
  const auto* const indices = integers_at(inputs, 1);
  const auto axis = axis_of(Attributes(node).integer("axis", 0), input.shape.size());
  if (indices == nullptr || !axis || inputs[1]->is_uniform) return std::nullopt;
  const auto extent = input.shape[*axis];
  const std::vector<std::size_t> strides = strides_of(input.shape);
  const std::size_t inner = strides[*axis];
  const std::size_t block = inner * static_cast<std::size_t>(extent);
  const std::size_t outer = block == 0 ? 0 : size_of(input.shape) / block;
  std::vector<std::size_t> read;
  for (std::size_t o = 0; o < outer; ++o)
    for (std::int64_t index : *indices) {
      if (index < 0) index += extent;
      if (index < 0 || index >= extent) return std::nullopt;
      for (std::size_t i = 0; i < inner; ++i)
        read.push_back(o * block + static_cast<std::size_t>(index) * inner + i);
    }
  Shape shape(input.shape.begin(), input.shape.begin() + static_cast<std::ptrdiff_t>(*axis));
  shape.insert(shape.end(), inputs[1]->shape.begin(), inputs[1]->shape.end());
  shape.insert(shape.end(), input.shape.begin() + static_cast<std::ptrdiff_t>(*axis) + 1,
               input.shape.end());
  return picked(input, std::move(shape), read);
}

std::optional<Constant> concatenate(const Node& node, Inputs inputs) {
  if (inputs.empty() || inputs.front() == nullptr) return std::nullopt;
  const Constant& first = *inputs.front();
  const auto axis = axis_of(Attributes(node).integer("axis", 0), first.shape.size());
  if (!axis) return std::nullopt;
  Shape shape = first.shape;
  shape[*axis] = 0;
  for (const Constant* const input : inputs) {
    if (input == nullptr || input->values.index() != first.values.index() ||
        input->shape.size() != shape.size() || has_batch(input->shape))
      return std::nullopt;
    for (std::size_t k = 0; k < shape.size(); ++k)
      if (k == *axis)
        shape[k] += input->shape[k];
      else if (shape[k] != input->shape[k])
        return std::nullopt;
  }
  std::size_t outer = 1;
  for (std::size_t k = 0; k < *axis; ++k) outer *= static_cast<std::size_t>(shape[k]);
  return visit_values(first, [&](const auto& values) -> Constant {
    using Values = std::remove_cvref_t<decltype(values)>;
    Values result;
    result.reserve(size_of(shape));
    for (std::size_t o = 0; o < outer; ++o)
      for (const Constant* const input : inputs) {
        const Values& from = *std::get<std::shared_ptr<const Values>>(input->values);
        const std::size_t block = from.size() / outer;
        const auto begin = from.begin() + static_cast<std::ptrdiff_t>(o * block);
        result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(block));
      }
    return make(shape, std::move(result));
  });
}

/// The axes that a Squeeze or Unsqueeze names: an attribute, since version 13 an input.
std::optional<std::vector<std::int64_t>> listed_axes(const Node& node, Inputs inputs) {
  if (const auto* const axes = integers_at(inputs, 1)) return *axes;
  return Attributes(node).integers("axes");
}

std::optional<Constant> unsqueeze(const Node& node, const Constant& input, Inputs inputs) {
  const auto axes = listed_axes(node, inputs);
  if (!axes || input.shape.size() + axes->size() > 16) return std::nullopt;
  const std::size_t rank = input.shape.size() + axes->size();
  std::vector<bool> is_new(rank);
  for (const std::int64_t one : *axes) {
    const auto axis = axis_of(one, rank);
    if (!axis || is_new[*axis]) return std::nullopt;
    is_new[*axis] = true;
  }
  Shape shape;
  std::size_t next = 0;
  for (std::size_t k = 0; k < rank; ++k) shape.push_back(is_new[k] ? 1 : input.shape[next++]);
  return reshaped(input, std::move(shape));
}

std::optional<Constant> squeeze(const Node& node, const Constant& input, Inputs inputs) {
  const auto axes = listed_axes(node, inputs);
  std::vector<bool> removed(input.shape.size());
  for (std::size_t k = 0; k < removed.size() && !axes; ++k) removed[k] = input.shape[k] == 1;
  if (axes)
    for (const std::int64_t one : *axes) {
      const auto axis = axis_of(one, removed.size());
      if (!axis || input.shape[*axis] != 1) return std::nullopt;
      removed[*axis] = true;
    }
  Shape shape;
  for (std::size_t k = 0; k < removed.size(); ++k)
    if (!removed[k]) shape.push_back(input.shape[k]);
  return reshaped(input, std::move(shape));
}

std::optional<Constant> reshape(const Constant& input, Inputs inputs) {
  const auto* const wanted = integers_at(inputs, 1);
  if (wanted == nullptr || wanted->size() > 16) return std::nullopt;
  Shape shape = *wanted;
  const std::size_t total = size_of(input.shape);
  std::size_t known = 1;
  std::optional<std::size_t> free;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 0 && k < input.shape.size()) shape[k] = input.shape[k];
    if (shape[k] == -1 && !free)
      free = k;
    else if (shape[k] <= 0 || static_cast<std::size_t>(shape[k]) > total)
      return std::nullopt;
    else
      known *= static_cast<std::size_t>(shape[k]);
    if (known > total) return std::nullopt;
  }
  if (free) shape[*free] = static_cast<std::int64_t>(total / known);
  if (size_of(shape) != total) return std::nullopt;
  return reshaped(input, std::move(shape));
}

/// `a` and `b`, of one shape, or one of them a single element.
template <typename Element, typename Function>
std::optional<Constant> combined(const Constant& a, const Constant& b, const Function& function) {
  const auto& left = *std::get<Constant::Elements<Element>>(a.values);
  const auto& right = *std::get<Constant::Elements<Element>>(b.values);
  if (a.shape != b.shape && left.size() != 1 && right.size() != 1) return std::nullopt;
  std::vector<Element> values(std::max(left.size(), right.size()));
  if (left.empty() || right.empty()) return std::nullopt;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = function(left[left.size() == 1 ? 0 : i], right[right.size() == 1 ? 0 : i]);
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  const bool is_left =
      left.size() == 1 ? right.size() == 1 && a.shape.size() >= b.shape.size() : true;
  return make(is_left ? a.shape : b.shape, std::move(values));
}

std::optional<std::int64_t> integer_result(const std::string& type, std::int64_t a,
                                           std::int64_t b) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 31;  // no product of two overflows
  // The number of samples is only multiplied and divided by 1.
  if (a == kSampleCount && b == 1 && (type == "Mul" || type == "Div")) return kSampleCount;
  if (a == 1 && b == kSampleCount && type == "Mul") return kSampleCount;
  if (std::max(a, b) > kLargest || std::min(a, b) < -kLargest) return std::nullopt;
  if (type == "Add") return a + b;
  if (type == "Sub") return a - b;
  if (type == "Mul") return a * b;
  if (b == 0) return std::nullopt;
  return a / b;
}

std::optional<float> float_result(const std::string& type, float a, float b) {
  if (type == "Add") return a + b;
  if (type == "Sub") return a - b;
  if (type == "Mul") return a * b;
  return a / b;
}

std::optional<Constant> arithmetic(const Node& node, Inputs inputs) {
  if (inputs.size() != 2 || inputs[0] == nullptr || inputs[1] == nullptr) return std::nullopt;
  const Constant& a = *inputs[0];
  const Constant& b = *inputs[1];
  if (a.values.index() != b.values.index() || a.is_uniform || b.is_uniform) return std::nullopt;
  if (a.floats() != nullptr)
    return combined<float>(a, b, [&](float x, float y) { return float_result(node.type, x, y); });
  return combined<std::int64_t>(
      a, b, [&](std::int64_t x, std::int64_t y) { return integer_result(node.type, x, y); });
}

std::optional<Constant> cast(const Node& node, const Constant& input) {
  const auto type = static_cast<TensorType>(Attributes(node).integer("to", 1));
  const bool to_floats = type == TensorType::float32 || type == TensorType::float64 ||
                         type == TensorType::float16 || type == TensorType::bfloat16;
  if (to_floats == (input.floats() != nullptr)) return input;
  if (to_floats) {
    const std::vector<std::int64_t>& values = *input.integers();
    if (std::ranges::find(values, kSampleCount) != values.end()) return std::nullopt;
    std::vector<float> floats;
    for (const std::int64_t value : values) floats.push_back(static_cast<float>(value));
    return make(input.shape, std::move(floats), input.is_uniform);
  }
  std::vector<std::int64_t> integers;
  for (const float value : *input.floats()) {
    constexpr float kLargest = 1e15f;
    if (!(value > -kLargest && value < kLargest)) return std::nullopt;
    integers.push_back(static_cast<std::int64_t>(value));
  }
  return make(input.shape, std::move(integers), input.is_uniform);
}

/// An array of `shape`, all of whose elements are that of `value`.
std::optional<Constant> uniform(const Constant& value, Shape shape) {
  if (shape.size() > 16) return std::nullopt;
  std::size_t total = 1;
  for (const std::int64_t extent : shape) {
    if (extent == kSampleCount) continue;
    if (extent < 0 || extent > (std::int64_t{1} << 31)) return std::nullopt;
    total *= static_cast<std::size_t>(extent);
    if (total > (std::size_t{1} << 31)) return std::nullopt;
  }
  Constant result = value;
  result.shape = std::move(shape);
  result.is_uniform = true;
  return result;
}

std::optional<Constant> constant_of_shape(const Node& node, Inputs inputs) {
  const auto* const shape = integers_at(inputs, 0);
  if (shape == nullptr) return std::nullopt;
  const Tensor* const value = Attributes(node).tensor("value");
  const Constant filling = value != nullptr ? constant_of(*value) : make<float>({1}, {0.0f});
  if (!filling.scalar()) return std::nullopt;
  return uniform(filling, *shape);
}

std::optional<Constant> expand(const Constant& input, Inputs inputs) {
  const auto* const shape = integers_at(inputs, 1);
  if (shape == nullptr || !input.scalar()) return std::nullopt;
  return uniform(input, *shape);
}

std::optional<Constant> constant_node(const Node& node) {
  const Attributes attributes(node);
  if (const Tensor* const tensor = attributes.tensor("value")) return constant_of(*tensor);
  if (const auto integers = attributes.integers("value_ints")) return constant_of(*integers);
  if (attributes.has("value_int"))
    return make<std::int64_t>({}, {attributes.integer("value_int", 0)});
  if (attributes.has("value_float")) return make<float>({}, {attributes.number("value_float", 0)});
  for (const Attribute& one : node.attributes)
    if (const auto* const floats = std::get_if<std::vector<float>>(&one.value);
        floats != nullptr && one.name == "value_floats")
      return make<float>({static_cast<std::int64_t>(floats->size())}, *floats);
  return std::nullopt;
}

/// (x - zero point) * scale, of one scale or of one for each index of an axis.
std::optional<Constant> dequantize(const Node& node, const Constant& input, Inputs inputs) {
  const Constant* const scale = inputs.size() > 1 ? inputs[1] : nullptr;
  const auto* const zeros = integers_at(inputs, 2);
  const bool has_zeros = inputs.size() > 2 && inputs[2] != nullptr;
  const Attributes attributes(node);
  if (input.integers() == nullptr || scale == nullptr || scale->floats() == nullptr ||
      has_zeros != (zeros != nullptr) || attributes.integer("block_size", 0) != 0)
    return std::nullopt;
  const std::vector<float>& scales = *scale->floats();
  std::size_t inner = 1;  // elements with one scale that follow each other
  if (scales.size() != 1) {
    const auto axis = axis_of(attributes.integer("axis", 1), input.shape.size());
    if (!axis || scale->shape.size() != 1 || scale->shape.front() != input.shape[*axis])
      return std::nullopt;
    inner = strides_of(input.shape)[*axis];
  }
  if (scales.empty() || (zeros != nullptr && zeros->size() != scales.size())) return std::nullopt;
  std::vector<float> values;
  values.reserve(input.integers()->size());
  for (const std::int64_t integer : *input.integers()) {
    const std::size_t channel = values.size() / inner % scales.size();
    const std::int64_t zero = zeros == nullptr ? 0 : (*zeros)[channel];
    constexpr std::int64_t kLargest = std::int64_t{1} << 32;  // of the types that ONNX allows
    if (integer < -kLargest || integer > kLargest || zero < -kLargest || zero > kLargest)
      return std::nullopt;
    values.push_back(static_cast<float>(integer - zero) * scales[channel]);
  }
  return make(input.shape, std::move(values));
}

constexpr std::array<std::string_view, 17> kFolded{
    "Constant", "ConstantOfShape", "Identity", "Cast",      "Transpose",
    "Slice",    "Gather",          "Concat",   "Unsqueeze", "Squeeze",
    "Reshape",  "Expand",          "Add",      "Sub",       "Mul",
    "Div",      "DequantizeLinear"};

std::optional<Constant> folded(const Node& node, Inputs inputs) {
  const std::string& type = node.type;
  if (type == "Constant") return constant_node(node);
  if (type == "ConstantOfShape") return constant_of_shape(node, inputs);
  if (type == "Concat") return concatenate(node, inputs);
  if (type == "Add" || type == "Sub" || type == "Mul" || type == "Div")
    return arithmetic(node, inputs);
  if (inputs.empty() || inputs.front() == nullptr) return std::nullopt;
  const Constant& input = *inputs.front();
  if (type == "Identity") return input;
  if (type == "Cast") return cast(node, input);
  // Zeros of an initial state, for example, remain zeros wherever they go.
  if (has_batch(input.shape)) return reshaped(input, {kSampleCount});
  if (type == "DequantizeLinear") return dequantize(node, input, inputs);
  if (type == "Transpose") return transpose(node, input);
  if (type == "Slice") return slice(input, inputs);
  if (type == "Gather") return gather(node, input, inputs);
  if (type == "Unsqueeze") return unsqueeze(node, input, inputs);
  if (type == "Squeeze") return squeeze(node, input, inputs);
  if (type == "Reshape") return reshape(input, inputs);
  return expand(input, inputs);
}

}  // namespace

const std::vector<float>* Constant::floats() const {
  const auto* const found = std::get_if<Elements<float>>(&values);
  return found == nullptr ? nullptr : found->get();
}

const std::vector<std::int64_t>* Constant::integers() const {
  const auto* const found = std::get_if<Elements<std::int64_t>>(&values);
  return found == nullptr ? nullptr : found->get();
}

std::optional<double> Constant::scalar() const {
  if (has_batch(shape) || model::element_count(shape) != 1) return std::nullopt;
  return visit_values(*this, [](const auto& all) { return static_cast<double>(all.front()); });
}

bool Constant::is_zero() const {
  return visit_values(*this, [](const auto& all) {
    return std::ranges::all_of(all, [](auto value) { return value == 0; });
  });
}

Constant constant_of(const Tensor& tensor) {
  switch (tensor.type) {
    case TensorType::float32:
      return make(tensor.shape, elements_of<float>(tensor.bytes));
    case TensorType::float64: {
      const std::vector<double> values = elements_of<double>(tensor.bytes);
      std::vector<float> floats;
      for (const double value : values) floats.push_back(static_cast<float>(value));
      return make(tensor.shape, std::move(floats));
    }
    case TensorType::float16:
      return widened<Float16>(tensor);
    case TensorType::bfloat16:
      return widened<BFloat16>(tensor);
    case TensorType::int64:
      return integers_of<std::int64_t>(tensor);
    case TensorType::int32:
      return integers_of<std::int32_t>(tensor);
    case TensorType::int8:
      return integers_of<std::int8_t>(tensor);
    case TensorType::uint8:
    case TensorType::boolean:
    case TensorType::string:
      break;
  }
  return integers_of<std::uint8_t>(tensor);
}

Constant constant_of(std::vector<std::int64_t> values) {
  const Shape shape = {static_cast<std::int64_t>(values.size())};
  return make(shape, std::move(values));
}

const Attribute* Attributes::find(std::string_view name) const {
  const auto found = std::ranges::find(node_->attributes, name, &Attribute::name);
  return found == node_->attributes.end() ? nullptr : &*found;
}

std::int64_t Attributes::integer(std::string_view name, std::int64_t fallback) const {
  const Attribute* const found = find(name);
  const auto* const value = found ? std::get_if<std::int64_t>(&found->value) : nullptr;
  return value ? *value : fallback;
}

float Attributes::number(std::string_view name, float fallback) const {
  const Attribute* const found = find(name);
  const auto* const value = found ? std::get_if<float>(&found->value) : nullptr;
  return value ? *value : fallback;
}

std::string Attributes::text(std::string_view name, std::string_view fallback) const {
  const Attribute* const found = find(name);
  const auto* const value = found ? std::get_if<std::string>(&found->value) : nullptr;
  return value ? *value : std::string(fallback);
}

std::optional<std::vector<std::int64_t>> Attributes::integers(std::string_view name) const {
  const Attribute* const found = find(name);
  const auto* const value = found ? std::get_if<std::vector<std::int64_t>>(&found->value) : nullptr;
  return value ? std::optional(*value) : std::nullopt;
}

const Tensor* Attributes::tensor(std::string_view name) const {
  const Attribute* const found = find(name);
  return found ? std::get_if<Tensor>(&found->value) : nullptr;
}

std::optional<Constant> ConstantFolder::fold(const Node& node, Inputs inputs, std::int64_t opset,
                                             std::string_view where) {
  if (!node.domain.empty() || std::ranges::find(kFolded, node.type) == kFolded.end() ||
      (opset < 10 && node.type == "Slice"))
    return std::nullopt;
  // What it makes is as large as its inputs, or for Gather as rows for all of the indices.
  std::size_t made = 1;
  std::vector<Constant> filled;  // uniform arrays as others
  filled.reserve(inputs.size());
  std::vector<const Constant*> all(inputs.begin(), inputs.end());
  const auto spend = [&](std::size_t elements) {
    if (elements > left_)
      throw Error(ErrorCategory::input, where, "expected constants that can be computed in memory",
                  fmt::format("node \"{}\" ({}) makes too many", node.name, node.type));
    left_ -= elements;
  };
  for (const Constant*& input : all) {
    if (input == nullptr || has_batch(input->shape)) continue;
    const std::size_t size = size_of(input->shape);
    made += size;
    if (!input->is_uniform) continue;
    spend(size);
    filled.push_back(visit_values(*input, [&](const auto& values) {
      return make(input->shape, std::remove_cvref_t<decltype(values)>(size, values.front()));
    }));
    input = &filled.back();
  }
  if (node.type == "Gather" && all.size() == 2 && all[0] != nullptr && all[1] != nullptr &&
      !has_batch(all[0]->shape))
    made = size_of(all[0]->shape) * std::max<std::size_t>(size_of(all[1]->shape), 1);
  spend(made);
  return folded(node, all);
}

std::optional<std::size_t> axis_of(std::int64_t axis, std::size_t rank) {
  const auto count = static_cast<std::int64_t>(rank);
  if (axis < -count || axis >= count) return std::nullopt;
  return static_cast<std::size_t>(axis < 0 ? axis + count : axis);
}

}  // namespace lockstep::onnx
