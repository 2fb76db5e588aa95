#include "lockstep/model/layers/shape/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/json/json.h"
#include "lockstep/model/layer/json_object.h"
#include "lockstep/model/layers/shape/strided_copy.h"

namespace lockstep::inline v0::model {
namespace {

using nlohmann::json;

// Product of the extents from axis `first` on.
std::int64_t elements_from(const Shape& shape, std::int64_t first) {
  return element_count(Shape(shape.begin() + first, shape.end()));
}

// The index in `shape` of an axis that is counted with the batch, or from the end; -1 if none.
std::int64_t axis_of(const Shape& shape, std::int64_t axis) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const std::int64_t index = axis < 0 ? rank + axis : axis - 1;
  return index < rank ? std::max<std::int64_t>(index, -1) : -1;
}

constexpr const char* kExpectedPadding =
    "expected \"padding\" to be a number of zeros, [height, width] or "
    "[[top, bottom], [left, right]]";
constexpr const char* kExpectedCropping =
    "expected \"cropping\" to be a number of positions, or [before, after]";

std::int64_t read_side(const JsonObject& object, const json& value, const char* expected) {
  if (!value.is_number_unsigned() ||
      value.get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max())
    object.refuse(expected, fmt::format("got {}", describe_json(value)));
  return value.get<std::int64_t>();
}

// The zeros, or positions, before and after one axis.
std::pair<std::int64_t, std::int64_t> read_sides(const JsonObject& object, const json& value,
                                                 const char* expected) {
  const bool two = value.is_array() && value.size() == 2;
  return {read_side(object, two ? value[0] : value, expected),
          read_side(object, two ? value[1] : value, expected)};
}

}  // namespace

Shape Reshape::build(BuildContext& context) const {
  const Shape& input = context.input();
  const bool positive = std::ranges::all_of(options_.shape, [](auto extent) { return extent > 0; });
  if (!positive || options_.shape.empty() || element_count(options_.shape) != element_count(input))
    context.refuse(fmt::format("expected a shape of {} elements", element_count(input)),
                   fmt::format("got {} for {}", to_string(options_.shape), to_string(input)));
  return options_.shape;
}

std::unique_ptr<Operation> Reshape::compile(const CompileContext& /*context*/,
                                            Backend& /*backend*/) const {
  return nullptr;
}

std::shared_ptr<const Layer> Reshape::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Reshape>(Options{.shape = object.counts("shape")});
}

void Reshape::write(json& object) const { object["shape"] = options_.shape; }

Shape Permute::build(BuildContext& context) const {
  const Shape& input = context.input();
  constexpr std::size_t kMaxRank = StridedCopy::kMaxAxes - 1;
  if (input.size() > kMaxRank)
    context.refuse(fmt::format("expected an input of at most {} axes", kMaxRank),
                   fmt::format("got {}", to_string(input)));
  std::vector<std::int64_t> axes = options_.dims;
  std::ranges::sort(axes);
  bool each_once = axes.size() == input.size();
  for (std::size_t k = 0; k < axes.size(); ++k)
    each_once &= axes[k] == static_cast<std::int64_t>(k) + 1;
  if (!each_once)
    context.refuse(fmt::format("expected dims with each of 1 to {} once", input.size()),
                   fmt::format("got {}", to_string(options_.dims)));
  Shape output;
  for (const std::int64_t dim : options_.dims) output.push_back(input[dim - 1]);
  return output;
}

std::vector<StridedCopy> Permute::copies(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  const std::int64_t elements = element_count(input);
  StridedCopy copy;
  copy.add(context.batch, elements, elements);
  for (std::size_t k = 0; k < options_.dims.size(); ++k)
    copy.add(context.output[k], elements_from(input, options_.dims[k]),
             elements_from(context.output, static_cast<std::int64_t>(k) + 1));
  return {copy};
}

std::shared_ptr<const Layer> Permute::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Permute>(Options{.dims = object.counts("dims")});
}

void Permute::write(json& object) const { object["dims"] = options_.dims; }

Shape Concatenate::build(BuildContext& context) const {
  if (context.inputs().size() < 2)
    context.refuse("expected two inputs or more", fmt::format("got {}", context.inputs().size()));
  Shape output = context.inputs().front();
  const std::int64_t axis = axis_of(output, options_.axis);
  if (axis < 0)
    context.refuse(fmt::format("expected an axis from 1 to {}, or from -{} to -1", output.size(),
                               output.size()),
                   fmt::format("got {}", options_.axis));
  std::int64_t sum = 0;
  for (const Shape& input : context.inputs()) {
    Shape other = input;
    if (other.size() == output.size()) other[axis] = output[axis];
    if (other != output)
      context.refuse(fmt::format("expected inputs that differ in axis {} alone", axis + 1),
                     fmt::format("got {} and {}", to_string(output), to_string(input)));
    if (__builtin_add_overflow(sum, input[axis], &sum))
      sum = std::numeric_limits<std::int64_t>::max();
  }
  output[axis] = sum;
  return context.within_limits(std::move(output));
}

std::vector<StridedCopy> Concatenate::copies(const CompileContext& context) const {
  const std::int64_t axis = axis_of(context.output, options_.axis);
  const std::int64_t joined = elements_from(context.output, axis);
  const std::int64_t rows = context.batch * element_count(context.output) / joined;
  std::vector<StridedCopy> copies;
  std::int64_t offset = 0;
  for (const Shape& input : context.inputs) {
    const std::int64_t width = elements_from(input, axis);
    StridedCopy& copy = copies.emplace_back();
    copy.target.offset = offset;
    copy.add(rows, width, joined);
    copy.add(width, 1, 1);
    offset += width;
  }
  return copies;
}

std::shared_ptr<const Layer> Concatenate::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Concatenate>(
      Options{.axis = object.integer("axis", Options{}.axis)});
}

void Concatenate::write(json& object) const { object["axis"] = options_.axis; }

Shape ZeroPadding2D::build(BuildContext& context) const {
  const Shape& input = context.image_input();
  const auto& [top, bottom, left, right] = options_;
  if (std::min({top, bottom, left, right}) < 0)
    context.refuse("expected no negative number of zeros",
                   fmt::format("got {}, {}, {} and {}", top, bottom, left, right));
  return context.within_limits({top + input[0] + bottom, left + input[1] + right, input[2]});
}

std::vector<StridedCopy> ZeroPadding2D::copies(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  const Shape& output = context.output;
  StridedCopy copy;
  copy.target.offset = options_.top * elements_from(output, 1) + options_.left * output[2];
  copy.add(context.batch, element_count(input), element_count(output));
  copy.add(input[0], elements_from(input, 1), elements_from(output, 1));
  copy.add(input[1] * input[2], 1, 1);
  return {copy};
}

std::shared_ptr<const Layer> ZeroPadding2D::read(JsonObject& object, const DataShape& /*data*/) {
  if (!object.has("padding")) return std::make_shared<const ZeroPadding2D>();
  const json& value = object.required("padding");
  const bool two = value.is_array() && value.size() == 2;
  const auto [top, bottom] = read_sides(object, two ? value[0] : value, kExpectedPadding);
  const auto [left, right] = read_sides(object, two ? value[1] : value, kExpectedPadding);
  return std::make_shared<const ZeroPadding2D>(
      Options{.top = top, .bottom = bottom, .left = left, .right = right});
}

void ZeroPadding2D::write(json& object) const {
  object["padding"] = {{options_.top, options_.bottom}, {options_.left, options_.right}};
}

Shape Cropping1D::build(BuildContext& context) const {
  const Shape& input = context.input();
  const auto& [before, after] = options_;
  if (input.size() != 2)
    context.refuse("expected an input [positions, channels]",
                   fmt::format("got {}", to_string(input)));
  if (before < 0 || after < 0 || before + after >= input[0])
    context.refuse(fmt::format("expected to leave at least one of {} positions", input[0]),
                   fmt::format("got a cropping of {} and {}", before, after));
  return {input[0] - before - after, input[1]};
}

std::vector<StridedCopy> Cropping1D::copies(const CompileContext& context) const {
  const std::int64_t remaining = element_count(context.output);
  StridedCopy copy;
  copy.source.offset = options_.before * context.output[1];
  copy.add(context.batch, element_count(context.inputs.front()), remaining);
  copy.add(remaining, 1, 1);
  return {copy};
}

std::shared_ptr<const Layer> Cropping1D::read(JsonObject& object, const DataShape& /*data*/) {
  if (!object.has("cropping")) return std::make_shared<const Cropping1D>();
  const auto [before, after] = read_sides(object, object.required("cropping"), kExpectedCropping);
  return std::make_shared<const Cropping1D>(Options{.before = before, .after = after});
}

void Cropping1D::write(json& object) const {
  object["cropping"] = {options_.before, options_.after};
}

}  // namespace lockstep::inline v0::model
