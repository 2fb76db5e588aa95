// Folds operators that create constants, or move, repeat or drop their elements.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/onnx/import/folding.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;

constexpr std::size_t kMaxAxes = 16;

bool is_extent(std::int64_t extent) { return extent >= 0 && extent <= (std::int64_t{1} << 31); }

/// Whether the extents are within limits, or one is the number of samples.
bool is_shape(const Shape& shape) {
  return shape.size() <= kMaxAxes && std::ranges::count(shape, kSampleCount) <= 1 &&
         std::ranges::all_of(shape, [](auto e) { return e == kSampleCount || is_extent(e); });
}

/// Moving equal elements changes the shape only.
Folded any_batch(const Constant& input) { return reshaped(input, {kSampleCount}); }

// ---- Creating constants

/// One element repeated to `shape`.
Folded filled(const Folding& f, const Constant& element, const Shape& shape) {
  if (!is_shape(shape)) return std::nullopt;
  return expanded(f, reshaped(element, {}), shape);
}

Folded constant(const Folding& f) {
  if (const Tensor* const tensor = f.options.tensor("value")) return constant_of(*tensor);
  if (const auto integers = f.options.integers("value_ints")) return constant_of(*integers);
  if (f.options.has("value_int"))
    return make_constant<std::int64_t>({}, {f.options.integer("value_int", 0)});
  if (f.options.has("value_float"))
    return make_constant<float>({}, {f.options.number("value_float", 0)});
  if (!f.options.has("value_floats")) return std::nullopt;
  std::vector<float> floats = f.options.numbers("value_floats");
  const Shape shape{static_cast<std::int64_t>(floats.size())};
  return make_constant(shape, std::move(floats));
}

Folded constant_of_shape(const Folding& f) {
  const auto* const shape = f.integers(0);
  if (shape == nullptr) return std::nullopt;
  const Tensor* const value = f.options.tensor("value");
  const Constant element =
      value != nullptr ? constant_of(*value) : make_constant<float>({}, {0.0f});
  return element.scalar() ? filled(f, element, *shape) : std::nullopt;
}

Folded range(const Folding& f) {
  for (const std::size_t k : {0, 1, 2})
    if (f.input(k) == nullptr || !f.input(k)->scalar() ||
        f.input(k)->values.index() != f.input(0)->values.index())
      return std::nullopt;
  const double start = *f.input(0)->scalar();
  const double step = *f.input(2)->scalar();
  const double count = std::max(std::ceil((*f.input(1)->scalar() - start) / step), 0.0);
  constexpr double kMax = 1e12;  // consecutive numbers are not exact above
  if (!(count < kMax) || std::abs(*f.input(1)->scalar()) > kMax || std::abs(start) > kMax ||
      std::abs(step) > kMax)
    return std::nullopt;
  const Shape shape{static_cast<std::int64_t>(count)};
  f.spend(shape);
  return visit_values(*f.input(0), [&](const auto& values) {
    std::remove_cvref_t<decltype(values)> result;
    for (std::int64_t k = 0; k < shape.front(); ++k)
      result.push_back(static_cast<typename std::remove_cvref_t<decltype(values)>::value_type>(
          start + static_cast<double>(k) * step));
    return make_constant(shape, std::move(result));
  });
}

// ---- Shapes

Folded shape_of(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr || !input->shape_is_known()) return std::nullopt;
  return constant_of(shape_between(input->shape, f.node));
}

Folded size(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr || input->has_batch()) return std::nullopt;
  return make_constant<std::int64_t>({}, {model::element_count(input->shape)});
}

Folded reshape(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto* const wanted = f.integers(1);
  if (input == nullptr || wanted == nullptr || wanted->size() > kMaxAxes) return std::nullopt;
  if (input->has_batch()) return any_batch(*input);
  Shape shape = *wanted;
  const std::size_t total = size_of(input->shape);
  const bool keeps_zeros = f.options.integer("allowzero", 0) != 0;
  std::size_t known = 1;
  std::optional<std::size_t> free;
  for (std::size_t k = 0; k < shape.size(); ++k) {
    if (shape[k] == 0 && !keeps_zeros && k < input->shape.size()) shape[k] = input->shape[k];
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
  return reshaped(*input, std::move(shape));
}

Folded flatten(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr) return std::nullopt;
  if (input->has_batch()) return any_batch(*input);
  const auto rank = static_cast<std::int64_t>(input->shape.size());
  std::int64_t axis = f.options.integer("axis", 1);
  if (axis < -rank || axis > rank) return std::nullopt;
  if (axis < 0) axis += rank;
  const auto middle = input->shape.begin() + axis;
  const std::int64_t rows = model::element_count(Shape(input->shape.begin(), middle));
  const std::int64_t columns = model::element_count(Shape(middle, input->shape.end()));
  return reshaped(*input, {rows, columns});
}

Folded unsqueeze(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto axes = f.integers(1, "axes");
  if (input == nullptr || !axes || input->shape.size() + axes->size() > kMaxAxes)
    return std::nullopt;
  if (!input->shape_is_known()) return *input;
  const std::size_t rank = input->shape.size() + axes->size();
  std::vector<bool> is_new(rank);
  for (const std::int64_t one : *axes) {
    const auto axis = axis_of(one, rank);
    if (!axis || is_new[*axis]) return std::nullopt;
    is_new[*axis] = true;
  }
  Shape shape;
  std::size_t next = 0;
  for (std::size_t k = 0; k < rank; ++k) shape.push_back(is_new[k] ? 1 : input->shape[next++]);
  return reshaped(*input, std::move(shape));
}

Folded squeeze(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr) return std::nullopt;
  if (!input->shape_is_known()) return *input;
  const auto axes = f.integers(1, "axes");
  std::vector<bool> removed(input->shape.size());
  for (std::size_t k = 0; k < removed.size() && !axes; ++k) removed[k] = input->shape[k] == 1;
  if (axes)
    for (const std::int64_t one : *axes) {
      const auto axis = axis_of(one, removed.size());
      if (!axis || input->shape[*axis] != 1) return std::nullopt;
      removed[*axis] = true;
    }
  Shape shape;
  for (std::size_t k = 0; k < removed.size(); ++k)
    if (!removed[k]) shape.push_back(input->shape[k]);
  return reshaped(*input, std::move(shape));
}

Folded expand(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto* const wanted = f.integers(1);
  if (input == nullptr || wanted == nullptr || !is_shape(*wanted)) return std::nullopt;
  // A file for a fixed number of samples may contain that number in an array of zeros.
  Shape own = input->shape;
  for (std::size_t k = 1; k <= std::min(own.size(), wanted->size()); ++k)
    if ((*wanted)[wanted->size() - k] == kSampleCount && equal_element(f, *input))
      own[own.size() - k] = 1;
  const auto shape = common_shape(reshaped(*input, own), reshaped(*input, *wanted));
  if (!shape || !is_shape(*shape)) return std::nullopt;
  if (Folded whole = expanded(f, *input, *shape)) return whole;
  // Rows that all samples repeat keep the extent 1, which is repeated where they are used.
  Shape one = *shape;
  std::ranges::replace(one, kSampleCount, 1);
  return one == *shape ? std::nullopt : expanded(f, *input, one);
}

// ---- Moving elements

Folded transpose(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr) return std::nullopt;
  const std::size_t rank = input->shape.size();
  if (!input->shape_is_known()) return *input;
  std::vector<std::int64_t> order = f.options.integers("perm").value_or(Shape());
  if (order.empty())
    for (std::size_t axis = rank; axis-- > 0;) order.push_back(static_cast<std::int64_t>(axis));
  std::vector<bool> seen(rank);
  if (order.size() != rank) return std::nullopt;
  Shape shape;
  for (const std::int64_t axis : order) {
    const auto index = static_cast<std::size_t>(axis);
    if (axis < 0 || index >= rank || seen[index]) return std::nullopt;
    seen[index] = true;
    shape.push_back(input->shape[index]);
  }
  if (input->has_batch()) return reshaped(*input, std::move(shape));
  const std::vector<std::size_t> strides = strides_of(input->shape);
  std::vector<std::ptrdiff_t> steps;
  for (const std::int64_t axis : order)
    steps.push_back(static_cast<std::ptrdiff_t>(strides[static_cast<std::size_t>(axis)]));
  f.spend(shape);
  return gathered(*input, shape, element_offsets(shape, 0, steps));
}

Folded slice(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr) return std::nullopt;
  if (input->has_batch()) return any_batch(*input);
  const std::size_t rank = input->shape.size();
  const auto* const starts = f.integers(1);
  const auto* const ends = f.integers(2);
  const auto* const axes = f.integers(3);
  const auto* const steps = f.integers(4);
  if (starts == nullptr || ends == nullptr || starts->size() != ends->size() ||
      (axes != nullptr && axes->size() != starts->size()) ||
      (steps != nullptr && steps->size() != starts->size()))
    return std::nullopt;
  const std::vector<std::size_t> strides = strides_of(input->shape);
  Shape shape = input->shape;
  std::size_t begin = 0;
  std::vector<std::ptrdiff_t> distances(strides.begin(), strides.end());
  std::vector<bool> seen(rank);
  for (std::size_t i = 0; i < starts->size(); ++i) {
    const auto axis = axis_of(axes != nullptr ? (*axes)[i] : static_cast<std::int64_t>(i), rank);
    const std::int64_t step = steps != nullptr ? (*steps)[i] : 1;
    if (!axis || seen[*axis] || step == 0 || !is_extent(std::max(step, -(step + 1))) ||
        times_in((*starts)[i]) > 0 || (step > 0 && times_in((*ends)[i]) > 0))
      return std::nullopt;
    seen[*axis] = true;
    const std::int64_t extent = input->shape[*axis];
    // Backwards, the first element is at most the last one, and the end may precede element 0.
    const std::int64_t before = step < 0 ? -1 : 0;
    const auto clamped = [&](std::int64_t place, std::int64_t least) {
      if (place < 0) place = place < -extent ? least : place + extent;
      return std::clamp(place, least, std::max(extent + before, least));
    };
    const std::int64_t first = clamped((*starts)[i], 0);
    const std::int64_t end = clamped((*ends)[i], before);
    const std::int64_t size = step < 0 ? -step : step;
    shape[*axis] =
        (std::max<std::int64_t>(step < 0 ? first - end : end - first, 0) + size - 1) / size;
    if (extent > 0) begin += static_cast<std::size_t>(first) * strides[*axis];
    distances[*axis] *= static_cast<std::ptrdiff_t>(step);
  }
  f.spend(shape);
  return gathered(*input, shape, element_offsets(shape, begin, distances));
}

/// The elements [begin, end) of an axis.
Constant part_of(const Folding& f, const Constant& input, std::size_t axis, std::int64_t begin,
                 std::int64_t end) {
  const std::vector<std::size_t> strides = strides_of(input.shape);
  Shape shape = input.shape;
  shape[axis] = end - begin;
  f.spend(shape);
  return gathered(input, shape,
                  element_offsets(shape, static_cast<std::size_t>(begin) * strides[axis],
                                  std::vector<std::ptrdiff_t>(strides.begin(), strides.end())));
}

Folded split(const Folding& f) {
  const Constant* const input = f.input(0);
  if (input == nullptr) return std::nullopt;
  if (input->has_batch()) return any_batch(*input);
  const auto axis = axis_of(f.options.integer("axis", 0), input->shape.size());
  if (!axis) return std::nullopt;
  const std::int64_t extent = input->shape[*axis];
  const auto sizes = split_sizes(f.integers(1, "split"), extent, f.node.outputs.size());
  if (!sizes) return std::nullopt;
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < f.output; ++k) begin += (*sizes)[k];
  return part_of(f, *input, *axis, begin, begin + (*sizes)[f.output]);
}

Folded gather(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto* const indices = f.integers(1);
  if (input == nullptr) return std::nullopt;
  if (input->has_batch()) return any_batch(*input);
  const auto axis = axis_of(f.options.integer("axis", 0), input->shape.size());
  if (indices == nullptr || !axis) return std::nullopt;
  const auto extent = input->shape[*axis];
  const std::size_t inner = strides_of(input->shape)[*axis];
  const std::size_t block = inner * static_cast<std::size_t>(extent);
  const std::size_t outer = block == 0 ? 0 : size_of(input->shape) / block;
  Shape shape(input->shape.begin(), input->shape.begin() + static_cast<std::ptrdiff_t>(*axis));
  shape.insert(shape.end(), f.input(1)->shape.begin(), f.input(1)->shape.end());
  shape.insert(shape.end(), input->shape.begin() + static_cast<std::ptrdiff_t>(*axis) + 1,
               input->shape.end());
  f.spend(shape);
  std::vector<std::size_t> read;
  for (std::size_t o = 0; o < outer; ++o)
    for (std::int64_t index : *indices) {
      if (index < 0) index += extent;
      if (index < 0 || index >= extent) return std::nullopt;
      for (std::size_t i = 0; i < inner; ++i)
        read.push_back(o * block + static_cast<std::size_t>(index) * inner + i);
    }
  if (read.size() != size_of(shape)) return std::nullopt;
  return gathered(*input, std::move(shape), read);
}

Folded concatenate(const Folding& f) {
  if (f.inputs.empty() || f.input(0) == nullptr) return std::nullopt;
  const Constant& first = *f.input(0);
  const auto axis = axis_of(f.options.integer("axis", 0), first.shape.size());
  if (!axis) return std::nullopt;
  Shape shape = first.shape;
  shape[*axis] = 0;
  for (const Constant* const input : f.inputs) {
    if (input == nullptr || input->values.index() != first.values.index() ||
        input->shape.size() != shape.size() || input->has_batch() != first.has_batch() ||
        first.shape[*axis] == kSampleCount)
      return std::nullopt;
    for (std::size_t k = 0; k < shape.size(); ++k)
      if (k == *axis)
        shape[k] += input->shape[k];
      else if (shape[k] != input->shape[k])
        return std::nullopt;
  }
  if (first.has_batch()) {
    const bool are_equal = std::ranges::all_of(f.inputs, [&](const Constant* input) {
      return visit_values(*input, [](const auto& values) {
               return static_cast<double>(values.front());
             }) == visit_values(first, [](const auto& values) {
               return static_cast<double>(values.front());
             });
    });
    return are_equal ? Folded(reshaped(first, shape)) : std::nullopt;
  }
  f.spend(shape);
  std::size_t outer = 1;
  for (std::size_t k = 0; k < *axis; ++k) outer *= static_cast<std::size_t>(shape[k]);
  return visit_values(first, [&](const auto& values) -> Constant {
    using Values = std::remove_cvref_t<decltype(values)>;
    Values result;
    result.reserve(size_of(shape));
    for (std::size_t o = 0; o < outer; ++o)
      for (const Constant* const input : f.inputs) {
        const Values& from = *std::get<std::shared_ptr<const Values>>(input->values);
        const std::size_t block = from.size() / outer;
        const auto begin = from.begin() + static_cast<std::ptrdiff_t>(o * block);
        result.insert(result.end(), begin, begin + static_cast<std::ptrdiff_t>(block));
      }
    return make_constant(shape, std::move(result));
  });
}

Folded tile(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto* const repeats = f.integers(1);
  if (input == nullptr || repeats == nullptr) return std::nullopt;
  if (input->has_batch()) return any_batch(*input);
  const std::size_t rank = input->shape.size();
  if (repeats->size() != rank || 2 * rank > kMaxAxes || !is_shape(*repeats) ||
      std::ranges::count(*repeats, kSampleCount) > 0)
    return std::nullopt;
  // Splits each axis into repetitions and elements.
  Shape apart;
  Shape together;
  std::vector<std::ptrdiff_t> steps;
  const std::vector<std::size_t> strides = strides_of(input->shape);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    apart.insert(apart.end(), {(*repeats)[axis], input->shape[axis]});
    steps.insert(steps.end(), {0, static_cast<std::ptrdiff_t>(strides[axis])});
  }
  f.spend(apart);
  for (std::size_t axis = 0; axis < rank; ++axis)
    together.push_back((*repeats)[axis] * input->shape[axis]);
  return gathered(*input, together, element_offsets(apart, 0, steps));
}

Folded triangle(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto* const shift = f.integers(1);
  const bool has_shift = f.input(1) != nullptr;
  if (input == nullptr || input->has_batch() || input->shape.size() < 2 ||
      (has_shift && (shift == nullptr || shift->size() != 1 || shift->front() == kSampleCount)))
    return std::nullopt;
  const bool is_upper = f.options.integer("upper", 1) != 0;
  const double diagonal = has_shift ? static_cast<double>(shift->front()) : 0;
  const auto columns = static_cast<std::size_t>(input->shape.back());
  const auto rows = static_cast<std::size_t>(input->shape[input->shape.size() - 2]);
  f.spend(input->shape);
  return visit_values(*input, [&](const auto& values) {
    auto result = values;
    for (std::size_t i = 0; i < result.size(); ++i) {
      const auto beyond =
          static_cast<double>(i % columns) - static_cast<double>(i / columns % rows) - diagonal;
      if (is_upper ? beyond < 0 : beyond > 0) result[i] = 0;
    }
    return make_constant(input->shape, std::move(result));
  });
}

/// Pads an array with one value.
Folded pad(const Folding& f) {
  const Constant* const input = f.input(0);
  const auto pads = f.integers(1, "pads");
  const Constant* const value = f.input(2);
  if (input == nullptr || input->has_batch() || !pads || f.input(3) != nullptr ||
      pads->size() != 2 * input->shape.size() || f.options.text("mode", "constant") != "constant" ||
      !std::ranges::all_of(*pads, is_extent) ||
      (value != nullptr && (!value->scalar() || value->values.index() != input->values.index())))
    return std::nullopt;
  const std::size_t rank = input->shape.size();
  Shape shape = input->shape;
  for (std::size_t axis = 0; axis < rank; ++axis)
    shape[axis] += (*pads)[axis] + (*pads)[rank + axis];
  const std::size_t total = f.spend(shape);
  const std::vector<std::size_t> strides = strides_of(shape);
  std::size_t begin = 0;
  for (std::size_t axis = 0; axis < rank; ++axis)
    begin += static_cast<std::size_t>((*pads)[axis]) * strides[axis];
  const auto inside = element_offsets(input->shape, begin,
                                      std::vector<std::ptrdiff_t>(strides.begin(), strides.end()));
  return visit_values(*input, [&](const auto& values) {
    using Values = std::remove_cvref_t<decltype(values)>;
    using Element = typename Values::value_type;
    Values result(total, value == nullptr ? Element(0) : static_cast<Element>(*value->scalar()));
    for (std::size_t i = 0; i < inside.size(); ++i) result[inside[i]] = values[i];
    return make_constant(shape, std::move(result));
  });
}

constexpr FoldRow kShapeRows[] = {
    {"Concat", concatenate},
    {"Constant", constant},
    {"ConstantOfShape", constant_of_shape},
    {"Expand", expand},
    {"Flatten", flatten},
    {"Gather", gather},
    {"Pad", pad},
    {"Range", range},
    {"Reshape", reshape},
    {"Shape", shape_of},
    {"Size", size},
    {"Slice", slice},
    {"Split", split},
    {"Squeeze", squeeze},
    {"Tile", tile},
    {"Transpose", transpose},
    {"Trilu", triangle},
    {"Unsqueeze", unsqueeze},
};

}  // namespace

Shape shape_between(const Shape& shape, const Node& node) {
  // Since version 15 with a range of axes.
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto clamped = [&](std::int64_t axis) {
    return std::clamp<std::int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const Attributes options(node);
  const std::int64_t begin = clamped(std::max(options.integer("start", 0), -rank));
  const std::int64_t end = clamped(std::max(options.integer("end", rank), -rank));
  return {shape.begin() + std::min(begin, end), shape.begin() + end};
}

std::optional<Shape> split_sizes(const std::optional<std::vector<std::int64_t>>& requested,
                                 std::int64_t extent, std::size_t outputs) {
  const auto parts = static_cast<std::int64_t>(outputs);
  Shape sizes;
  if (requested) {
    sizes = *requested;
  } else {  // equal parts; the last may be smaller
    const std::int64_t size = (extent + parts - 1) / parts;
    for (std::int64_t k = 0; k < parts; ++k) sizes.push_back(std::min(size, extent - k * size));
  }
  std::int64_t total = 0;
  for (const std::int64_t size : sizes) {
    if (size <= 0 || size > extent - total) return std::nullopt;
    total += size;
  }
  if (sizes.size() != outputs || total != extent) return std::nullopt;
  return sizes;
}

std::span<const FoldRow> folded_shapes() { return kShapeRows; }

}  // namespace lockstep::inline v0::onnx
