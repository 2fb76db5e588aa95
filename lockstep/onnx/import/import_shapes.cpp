// Imports operators that change shapes or select parts of arrays.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "lockstep/model/layers/elementwise/rescaling.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"
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

/// The array with the shape `wanted`, whose axis `batch` are the samples and further axes of
/// `merged` elements, or of any number if that is 0. Nullopt if the elements of a sample would not
/// stay together.
std::optional<Array> reshaped_around(Array array, Shape wanted, std::size_t batch,
                                     std::int64_t merged) {
  const Shape sample = array.sample();
  const std::int64_t total = model::element_count(sample);
  const std::size_t place = array.batch() + array.before.size();  // the samples among the axes
  const std::int64_t before = extent_between(sample, 0, place);
  // At most one of the other axes is inferred, if the samples are not.
  std::optional<std::size_t> free;
  std::array<std::int64_t, 2> known{1, 1};  // before and after the samples
  for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
    if (axis == batch) continue;
    if (wanted[axis] == -1 && !free && merged > 0) {
      free = axis;
      continue;
    }
    std::int64_t& product = known[axis < batch ? 0 : 1];
    if (wanted[axis] <= 0 || wanted[axis] > total / product) return std::nullopt;
    product *= wanted[axis];
  }
  const std::array<std::int64_t, 2> all{before, total / before};
  if (all[0] % known[0] != 0 || all[1] % known[1] != 0) return std::nullopt;
  std::array<std::int64_t, 2> rest{all[0] / known[0], all[1] / known[1]};
  if (merged == 0) merged = rest[0] * rest[1];
  if (free) {
    std::int64_t& part = rest[*free < batch ? 0 : 1];
    const std::int64_t other = rest[*free < batch ? 1 : 0];
    if (merged % other != 0 || part % (merged / other) != 0) return std::nullopt;
    wanted[*free] = part / (merged / other);
    part = merged / other;
  }
  if (rest[0] * rest[1] != merged) return std::nullopt;
  array.before = rest[0] > 1 ? Shape{rest[0]} : Shape();
  array.after = rest[1] > 1 ? Shape{rest[1]} : Shape();
  wanted[batch] = kSampleCount;
  array.shape = std::move(wanted);
  return array;
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
  const Array input = any_array_at(node, 0);
  const auto requested = integers_at(node, 1, "shape");
  if (!requested || requested->size() > 16)
    refuse(node, "expected a shape of at most 16 axes", "got another");
  Shape wanted = *requested;
  // An extent of 0 is copied; that of merged axes is then inferred.
  if (Attributes(node).integer("allowzero", 0) == 0)
    for (std::size_t axis = 0; axis < wanted.size(); ++axis)
      if (wanted[axis] == 0 && axis < input.shape.size())
        wanted[axis] = axis == input.batch() && input.is_merged() ? -1 : input.shape[axis];
  // The axis of the samples is stated by the graph, or has the number of samples that the file
  // states, or is the inferred one, or has a multiple of that number. Of several, axes that are
  // merged after the samples are more usual, and the last axis is hardly ever merged.
  const auto merged_in = [&](std::int64_t extent, int pass) -> std::optional<std::int64_t> {
    if (pass == 0 && times_in(extent) > 0) return times_in(extent);
    if (pass == 1 && samples_ && extent == *samples_) return 1;
    if (pass == 2 && extent == -1) return 0;
    if (pass == 3 && samples_ && extent > 0 && extent % *samples_ == 0) return extent / *samples_;
    return std::nullopt;
  };
  for (int pass = 0; pass < 4; ++pass) {
    std::optional<Array> best;
    for (std::size_t axis = 0; axis < wanted.size(); ++axis) {
      const auto merged = merged_in(wanted[axis], pass);
      auto array = merged ? reshaped_around(input, wanted, axis, *merged) : std::nullopt;
      if (!array || (best && axis + 1 == wanted.size())) continue;
      if (!best || (!best->before.empty() && array->before.empty())) best = std::move(array);
    }
    if (best) return set(node, *best);
  }
  std::string text;
  for (const std::int64_t extent : *requested)
    text += fmt::format("{}{}", text.empty() ? "" : ", ",
                        extent == kSampleCount ? "N"
                        : times_in(extent) > 0 ? fmt::format("{} N", times_in(extent))
                                               : fmt::format("{}", extent));
  refuse(node, "expected a shape that keeps samples separate",
         fmt::format("got [{}] for samples of {}", text, model::to_string(input.sample())));
}

void Importer::import_squeeze(const Node& node) {
  const Array input = any_array_at(node, 0);
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
  const Array input = any_array_at(node, 0);
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
  const Array input = any_array_at(node, 0);
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
    const std::size_t count = index == batch ? array.before.size() + array.after.size() : 1;
    for (std::size_t k = 0; k < count; ++k) from.push_back(array.sample_axis(index) + k);
  }
  output.axes = output.sample();
  for (std::size_t k = 0; k < array.order.size(); ++k)
    output.order[k] =
        static_cast<std::size_t>(std::ranges::find(from, array.order[k]) - from.begin());
  set(node, output);
}

void Importer::import_concatenation(const Node& node) {
  if (node.inputs.empty()) refuse(node, "expected inputs", "it has none");
  std::size_t lead = 0;  // the first input that is no constant
  while (lead + 1 < node.inputs.size() && constant_at(node, lead) != nullptr) ++lead;
  const Array first = with_sample_axes(node, samples_at(node, lead));
  const std::size_t rank = first.shape.size();
  const auto axis = axis_of(Attributes(node).integer("axis", 0), rank);
  if (!axis || *axis == 0)
    refuse(node, "expected an axis of the samples", "it is that of the batch, or none");
  if (node.inputs.size() == 1) return set(node, first);
  Array output = first;
  std::vector<NodeId> inputs;
  output.shape[*axis] = 0;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const Constant* const constant = constant_at(node, k);
    const Array input =
        constant != nullptr ? repeated(node, first, *axis, *constant) : samples_at(node, k);
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

/// A constant as rows of each sample, such as the token of the class before those of an image: an
/// array like `array`, with another extent along `axis`. The rows are trained: they are added to
/// zeros.
Array Importer::repeated(const Node& node, const Array& array, std::size_t axis,
                         const Constant& constant) {
  Shape expected = array.shape;
  expected[axis] = constant.shape.size() == expected.size() ? constant.shape[axis] : 0;
  // Equal numbers may have been repeated for all samples already.
  if (!constant.has_batch()) expected[array.batch()] = 1;
  if (constant.floats() == nullptr || constant.shape != expected || expected[axis] < 1 ||
      expected[axis] > array.shape[axis])
    refuse(node, "expected arrays, and constants of the shape of one sample",
           fmt::format("a constant is {}, a sample {}", model::to_string(constant.shape),
                       model::to_string(array.sample())));
  Array rows = cropped(node, array, axis, 0, expected[axis]);
  const std::int64_t count = model::element_count(rows.sample());
  const NodeId zeros = add(node, model::Rescaling({.scale = 0}),
                           {moved(node, plain(node, rows), {1, count}, std::nullopt)});
  rows.node = add(node, model::PositionalEmbedding(), {zeros}, "rows");
  std::vector<float> values = *constant.floats();
  values.resize(static_cast<std::size_t>(count), values.front());
  set_weights(rows.node, "embeddings", std::move(values));
  rows.axes = rows.sample();
  std::ranges::sort(rows.order);
  return rows;
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
      std::ranges::any_of(*starts, [](std::int64_t start) { return times_in(start) > 0; }) ||
      std::ranges::any_of(*ends, [](std::int64_t end) { return times_in(end) > 1; }) ||
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
