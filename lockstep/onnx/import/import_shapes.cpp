// Imports operators that change shapes or select parts of arrays.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "lockstep/model/layers/shape/shape.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 31;

/// The number of elements of the sample axes in [begin, end).
std::int64_t extent_between(const Shape& shape, std::size_t begin, std::size_t end) {
  std::int64_t product = 1;
  for (std::size_t axis = begin; axis < end; ++axis) product *= shape[axis];
  return product;
}

/// The shape `wanted` of a Reshape of `array` whose axis `batch` are the samples; nullopt if it
/// does not keep samples separate.
std::optional<Shape> reshaped_around(const Array& array, Shape wanted, std::size_t batch) {
  const std::int64_t total = model::element_count(array.sample());
  std::optional<std::size_t> free;
  std::int64_t known = 1;
  for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
    if (axis == batch) continue;
    if (wanted[axis] == -1 && !free) {
      free = axis;
      continue;
    }
    if (wanted[axis] <= 0 || wanted[axis] > total / known) return std::nullopt;
    known *= wanted[axis];
  }
  if (total % known != 0 || (!free && known != total)) return std::nullopt;
  if (free) wanted[*free] = total / known;
  wanted[batch] = kSampleCount;
  if (extent_between(wanted, 0, batch) != extent_between(array.shape, 0, array.batch()))
    return std::nullopt;
  return wanted;
}

}  // namespace

void Importer::import_identity(const Node& node) {
  if (!has_input(node, 0)) refuse(node, "expected an input", "it is missing");
  set(node, Imported(imported(node, node.inputs.front())));
}

void Importer::import_cast(const Node& node) {
  const Array input = array_at(node, 0);
  const auto type = static_cast<TensorType>(Attributes(node).integer("to", 1));
  const bool to_integers = type == TensorType::int64 || type == TensorType::int32;
  const bool are_integers =
      model::is_input(input.node) &&
      network_.inputs()[model::input_index(input.node)].type == ElementType::int32;
  const bool to_floats = type == TensorType::float32 || type == TensorType::float64 ||
                         type == TensorType::float16 || type == TensorType::bfloat16;
  if (are_integers ? !to_integers : !to_floats)
    refuse(node, "expected a type of the same kind",
           fmt::format("it makes type {} of {}", Attributes(node).integer("to", 1),
                       are_integers ? "integers" : "floating-point numbers"));
  set(node, input);
}

void Importer::import_shape(const Node& node) {
  if (!has_input(node, 0)) refuse(node, "expected an input", "it is missing");
  const Imported& read = imported(node, node.inputs.front());
  if (std::holds_alternative<Constant>(read))
    refuse(node, "expected an array whose shape is known", "that of a constant is not");
  const Shape shape = std::visit(
      [](const auto& one) -> Shape {
        if constexpr (std::is_same_v<std::decay_t<decltype(one)>, Function>)
          return one.input.shape;
        else
          return one.shape;
      },
      read);
  set(node, constant_of(shape_between(shape, node)));
}

/// Reshapes `array`, keeping the order of the elements.
void Importer::reshape_to(const Node& node, Array array, Shape shape) {
  array.shape = std::move(shape);
  set(node, array);
}

void Importer::import_flatten(const Node& node) {
  const Array input = samples_at(node, 0);
  const std::size_t rank = input.shape.size();
  const std::int64_t axis = Attributes(node).integer("axis", 1);
  if (axis != 1 && axis != 1 - static_cast<std::int64_t>(rank))
    refuse(node, "expected to flatten the axes of each sample (\"axis\" 1)",
           fmt::format("got {}", axis));
  reshape_to(node, input, {kSampleCount, model::element_count(input.sample())});
}

void Importer::import_reshape(const Node& node) {
  const Array input = array_at(node, 0);
  const auto requested = integers_at(node, 1, "shape");
  if (!requested || requested->size() > 16)
    refuse(node, "expected a shape of at most 16 axes", "got another");
  Shape wanted = *requested;
  if (Attributes(node).integer("allowzero", 0) == 0)
    for (std::size_t axis = 0; axis < wanted.size(); ++axis)
      if (wanted[axis] == 0 && axis < input.shape.size()) wanted[axis] = input.shape[axis];
  // The axis of the samples is stated by the graph, or has the number of samples that the file
  // states, or is the inferred one.
  for (const std::optional<std::int64_t> sign :
       {std::optional(kSampleCount), samples_, std::optional(std::int64_t{-1})})
    for (std::size_t axis = 0; axis < wanted.size(); ++axis)
      if (sign && wanted[axis] == *sign)
        if (auto shape = reshaped_around(input, wanted, axis))
          return reshape_to(node, input, std::move(*shape));
  std::string text;
  for (const std::int64_t extent : *requested)
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        extent == kSampleCount ? "N" : fmt::format("{}", extent));
  refuse(node, "expected a shape that keeps samples separate",
         fmt::format("got [{}] for samples of {}", text, model::to_string(input.sample())));
}

void Importer::import_squeeze(const Node& node) {
  const Array input = array_at(node, 0);
  const auto axes = integers_at(node, 1, "axes");
  std::vector<bool> removed(input.shape.size());
  for (std::size_t axis = 0; axis < removed.size() && !axes; ++axis)
    removed[axis] = input.shape[axis] == 1;
  if (axes)
    for (const std::int64_t one : *axes) {
      const auto axis = axis_of(one, removed.size());
      if (!axis || input.shape[*axis] != 1)
        refuse(node, "expected axes of extent 1", fmt::format("axis {} has another", one));
      removed[*axis] = true;
    }
  Shape shape;
  for (std::size_t axis = 0; axis < removed.size(); ++axis)
    if (!removed[axis]) shape.push_back(input.shape[axis]);
  reshape_to(node, input, std::move(shape));
}

void Importer::import_unsqueeze(const Node& node) {
  const Array input = array_at(node, 0);
  const auto axes = integers_at(node, 1, "axes");
  const std::size_t rank = input.shape.size() + (axes ? axes->size() : 0);
  if (!axes || rank > 16)
    refuse(node, "expected at most 16 axes", "there are more, or none is named");
  std::vector<bool> is_new(rank);
  for (const std::int64_t one : *axes) {
    const auto axis = axis_of(one, rank);
    if (!axis || is_new[*axis])
      refuse(node, fmt::format("expected different axes of {}", rank), fmt::format("got {}", one));
    is_new[*axis] = true;
  }
  Shape shape;
  std::size_t next = 0;
  for (std::size_t axis = 0; axis < rank; ++axis)
    shape.push_back(is_new[axis] ? 1 : input.shape[next++]);
  reshape_to(node, input, std::move(shape));
}

void Importer::import_transpose(const Node& node) {
  const Array input = array_at(node, 0);
  const std::size_t rank = input.shape.size();
  std::vector<std::int64_t> order = Attributes(node).integers("perm").value_or(Shape());
  if (order.empty())
    for (std::size_t axis = rank; axis-- > 0;) order.push_back(static_cast<std::int64_t>(axis));
  Shape sorted = order;
  std::ranges::sort(sorted);
  bool is_order = order.size() == rank;
  for (std::size_t axis = 0; is_order && axis < rank; ++axis)
    is_order = sorted[axis] == static_cast<std::int64_t>(axis);
  if (!is_order) refuse(node, fmt::format("expected an order of {} axes", rank), "got another");
  const Array array = with_sample_axes(node, input);
  // Axis k of the new sample is axis from[k] of the old one.
  const std::size_t batch = array.batch();
  Axes from;
  Array output = array;
  output.shape.clear();
  for (const std::int64_t axis : order) {
    const auto index = static_cast<std::size_t>(axis);
    output.shape.push_back(array.shape[index]);
    if (index != batch) from.push_back(index < batch ? index : index - 1);
  }
  output.axes = output.sample();
  for (std::size_t k = 0; k < array.order.size(); ++k)
    output.order[k] =
        static_cast<std::size_t>(std::ranges::find(from, array.order[k]) - from.begin());
  set(node, output);
}

void Importer::import_concatenation(const Node& node) {
  if (node.inputs.empty()) refuse(node, "expected inputs", "it has none");
  const Array first = with_sample_axes(node, samples_at(node, 0));
  const std::size_t rank = first.shape.size();
  const auto axis = axis_of(Attributes(node).integer("axis", 0), rank);
  if (!axis || *axis == 0)
    refuse(node, "expected an axis of the samples", "it is that of the batch, or none");
  if (node.inputs.size() == 1) return set(node, first);
  Array output = first;
  std::vector<NodeId> inputs;
  output.shape[*axis] = 0;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const Array input = samples_at(node, k);
    if (input.shape.size() != rank)
      refuse(node, fmt::format("expected inputs of {} axes", rank),
             fmt::format("one has {}", input.shape.size()));
    output.shape[*axis] += input.shape[*axis];
    inputs.push_back(arranged(node, input, first.order));
  }
  output.axes = output.sample();
  const auto place = std::ranges::find(first.order, *axis - 1) - first.order.begin();
  output.node = add(node, model::Concatenate({.axis = static_cast<std::int64_t>(place) + 1}),
                    std::move(inputs));
  set(node, output);
}

/// The positions [begin, end) of the axis `axis` of the graph's array.
Array Importer::cropped(const Node& node, const Array& array, std::size_t axis, std::int64_t begin,
                        std::int64_t end) {
  const std::int64_t extent = array.shape[axis];
  if (begin == 0 && end == extent) return array;
  const std::size_t sample_axis = axis - (axis > array.batch() ? 1 : 0);
  Array output;
  // Moves the axis to the front and merges the others.
  output.order = {sample_axis};
  const Array own = with_sample_axes(node, array);
  for (const std::size_t other : own.order)
    if (other != sample_axis) output.order.push_back(other);
  NodeId from = arranged(node, own, output.order);
  const Shape sequence = {extent, model::element_count(own.axes) / extent};
  if (network_.shape(from) != sequence) from = moved(node, from, sequence, std::nullopt);
  output.node = add(node, model::Cropping1D({.before = begin, .after = extent - end}), {from});
  output.shape = array.shape;
  output.shape[axis] = end - begin;
  output.axes = output.sample();
  return output;
}

void Importer::import_gather(const Node& node) {
  if (!has_input(node, 0)) refuse(node, "expected an input", "it is missing");
  const Imported& read = imported(node, node.inputs.front());
  if (const auto* const rows = std::get_if<Constant>(&read)) return import_embedding(node, *rows);
  const Array input = array_at(node, 0);
  const Constant* const index = constant_at(node, 1);
  const std::size_t rank = input.shape.size();
  const auto axis = axis_of(Attributes(node).integer("axis", 0), rank);
  if (index == nullptr || index->integers() == nullptr || !index->scalar() || !axis ||
      *axis == input.batch() || index->shape.size() > 1)
    refuse(node, "expected one constant position of the samples, or rows of weights",
           "it reads others");
  std::int64_t position = index->integers()->front();
  const std::int64_t extent = input.shape[*axis];
  if (position < 0) position += extent;
  if (position < 0 || position >= extent)
    refuse(node, fmt::format("expected a position from 0 to {}", extent - 1),
           fmt::format("got {}", index->integers()->front()));
  Array output = cropped(node, input, *axis, position, position + 1);
  if (index->shape.empty())
    output.shape.erase(output.shape.begin() + static_cast<std::ptrdiff_t>(*axis));
  set(node, output);
}

void Importer::import_slice(const Node& node) {
  Array array = array_at(node, 0);
  const auto starts = integers_at(node, 1, "starts");
  const auto ends = integers_at(node, 2, "ends");
  std::vector<std::int64_t> axes;
  if (const auto listed = integers_at(node, 3, "axes"))
    axes = *listed;
  else
    for (std::size_t k = 0; starts && k < starts->size(); ++k)
      axes.push_back(static_cast<std::int64_t>(k));
  const auto steps = integers_at(node, 4, "steps");
  if (!starts || !ends || starts->size() != ends->size() || starts->size() != axes.size() ||
      std::ranges::find(*starts, kSampleCount) != starts->end() ||
      (steps && (steps->size() != axes.size() ||
                 std::ranges::any_of(*steps, [](std::int64_t step) { return step != 1; }))))
    refuse(node, "expected a begin and an end for each axis, and steps of 1", "got others");
  for (std::size_t k = 0; k < axes.size(); ++k) {
    const auto axis = axis_of(axes[k], array.shape.size());
    const bool is_all = (*starts)[k] == 0 && (*ends)[k] >= kMaxExtent;
    if (axis && *axis == array.batch() && is_all) continue;
    if (!axis || *axis == array.batch())
      refuse(node, "expected parts of each sample", "it selects samples");
    const std::int64_t extent = array.shape[*axis];
    const auto clamped = [&](std::int64_t place) {
      if (place < 0) place = place < -extent ? 0 : place + extent;
      return std::min(place, extent);
    };
    const std::int64_t begin = clamped((*starts)[k]);
    const std::int64_t end = clamped((*ends)[k]);
    if (end <= begin) refuse(node, "expected at least one position", "it selects none");
    array = cropped(node, array, *axis, begin, end);
  }
  set(node, array);
}

void Importer::import_split(const Node& node) {
  const Array input = array_at(node, 0);
  const auto axis = axis_of(Attributes(node).integer("axis", 0), input.shape.size());
  if (!axis || *axis == input.batch())
    refuse(node, "expected parts of each sample", "it splits the samples");
  const std::int64_t extent = input.shape[*axis];
  const auto sizes = split_sizes(integers_at(node, 1, "split"), extent, node.outputs.size());
  if (!sizes)
    refuse(node,
           fmt::format("expected a size for each of {} parts of {}", node.outputs.size(), extent),
           "got others");
  std::int64_t begin = 0;
  for (std::size_t k = 0; k < sizes->size(); ++k) {
    if (is_used(node, k)) set(node, cropped(node, input, *axis, begin, begin + (*sizes)[k]), k);
    begin += (*sizes)[k];
  }
}

}  // namespace lockstep::inline v0::onnx
