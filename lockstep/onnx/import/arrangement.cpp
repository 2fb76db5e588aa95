// The layouts of arrays, and layers that move elements.
#include <fmt/format.h>

#include <algorithm>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/shape/shape.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

Shape in_order(const Shape& axes, const Axes& order) {
  Shape shape;
  for (const std::size_t axis : order) shape.push_back(axes[axis]);
  return shape;
}

/// `order` without the axes of extent 1, which do not affect the layout.
Axes moving_axes(const Shape& axes, const Axes& order) {
  Axes moving;
  for (const std::size_t axis : order)
    if (axes[axis] != 1) moving.push_back(axis);
  return moving;
}

Axes identity(std::size_t rank) {
  Axes order;
  for (std::size_t axis = 0; axis < rank; ++axis) order.push_back(axis);
  return order;
}

Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

std::size_t Array::batch() const {
  return static_cast<std::size_t>(std::ranges::find(shape, kSampleCount) - shape.begin());
}

Shape Array::sample() const {
  Shape result;
  for (const std::int64_t extent : shape) {
    if (extent != kSampleCount) {
      result.push_back(extent);
      continue;
    }
    result.insert(result.end(), before.begin(), before.end());
    result.insert(result.end(), after.begin(), after.end());
  }
  return result;
}

std::size_t Array::sample_axis(std::size_t axis) const {
  return axis <= batch() ? axis : axis - 1 + before.size() + after.size();
}

/// `from` with the shape `shape`, or with its axes in the order of `dims`. Shared by all readers.
NodeId Importer::moved(const Node& node, NodeId from, Shape shape, std::optional<Axes> dims) {
  const auto key = std::tuple(from, shape, dims.value_or(Axes{}));
  if (const auto found = moves_.find(key); found != moves_.end()) return found->second;
  NodeId to = from;
  if (dims) {
    std::vector<std::int64_t> counted_from_1;
    for (const std::size_t axis : *dims)
      counted_from_1.push_back(static_cast<std::int64_t>(axis) + 1);
    to = add(node, model::Permute({.dims = counted_from_1}), {from});
  } else if (shape.size() == 1) {
    to = add(node, model::Flatten(), {from});
  } else {
    to = add(node, model::Reshape({.shape = shape}), {from});
  }
  moves_[key] = to;
  return to;
}

/// `array` with the sample's shape as `axes`, without moving elements.
Array Importer::with_sample_axes(const Node& node, Array array) {
  const Shape sample = array.sample();
  if (array.axes == sample) return array;
  if (without_ones(array.axes) == without_ones(sample)) {
    // Number k of the axes that are not 1 becomes number k of the others.
    Axes places;
    for (std::size_t axis = 0; axis < sample.size(); ++axis)
      if (sample[axis] != 1) places.push_back(axis);
    std::vector<std::size_t> rank_of(array.axes.size());
    std::size_t next = 0;
    for (std::size_t axis = 0; axis < array.axes.size(); ++axis)
      if (array.axes[axis] != 1) rank_of[axis] = next++;
    Axes order;
    for (const std::size_t axis : moving_axes(array.axes, array.order))
      order.push_back(places[rank_of[axis]]);
    for (std::size_t axis = 0; axis < sample.size(); ++axis)
      if (sample[axis] == 1) order.push_back(axis);
    array.order = std::move(order);
  } else {
    const Axes same = identity(array.axes.size());
    if (moving_axes(array.axes, array.order) != moving_axes(array.axes, same)) {
      Array original = array;
      original.shape = array.axes;
      original.shape.insert(original.shape.begin(), kSampleCount);
      original.before = original.after = {};
      array.node = arranged(node, original, same);
    }
    array.order = identity(sample.size());
  }
  array.axes = sample;
  return array;
}

NodeId Importer::arranged(const Node& node, Array array, const Axes& order) {
  array = with_sample_axes(node, std::move(array));
  const Shape wanted = in_order(array.axes, order);
  NodeId from = array.node;
  if (moving_axes(array.axes, array.order) != moving_axes(array.axes, order)) {
    const Shape own = in_order(array.axes, array.order);
    if (network_.shape(from) != own) from = moved(node, from, own, std::nullopt);
    Axes dims;
    for (const std::size_t axis : order)
      dims.push_back(
          static_cast<std::size_t>(std::ranges::find(array.order, axis) - array.order.begin()));
    return moved(node, from, wanted, dims);
  }
  if (network_.shape(from) != wanted) from = moved(node, from, wanted, std::nullopt);
  return from;
}

NodeId Importer::plain(const Node& node, const Array& array) {
  return arranged(node, array, identity(array.sample().size()));
}

NodeId Importer::channels_last(const Node& node, const Array& array) {
  Axes order = identity(array.shape.size() - 1);
  std::rotate(order.begin(), order.begin() + 1, order.end());
  return arranged(node, array, order);
}

}  // namespace lockstep::inline v0::onnx
