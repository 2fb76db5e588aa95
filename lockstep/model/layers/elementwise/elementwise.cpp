#include "lockstep/model/layers/elementwise/elementwise.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/layer/json_object.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/layers/elementwise/gelu.h"
#include "lockstep/model/layers/elementwise/hard_activations.h"
#include "lockstep/model/layers/elementwise/leaky_relu.h"
#include "lockstep/model/layers/elementwise/rescaling.h"
#include "lockstep/model/layers/elementwise/silu.h"
#include "lockstep/model/layers/elementwise/smooth_activations.h"

namespace lockstep::inline v0::model {
namespace {

constexpr auto kInt8Types =
    enum_names<Int8Type>({{Int8Type::int8, "int8"}, {Int8Type::uint8, "uint8"}});

// The shape that two or more inputs have in common.
Shape common_shape(const BuildContext& context) {
  if (context.inputs().size() < 2)
    context.refuse("expected two inputs or more", fmt::format("got {}", context.inputs().size()));
  for (const Shape& shape : context.inputs())
    if (shape != context.inputs().front())
      context.refuse(
          "expected inputs of one shape",
          fmt::format("got {} and {}", to_string(context.inputs().front()), to_string(shape)));
  return context.inputs().front();
}

}  // namespace

Shape ReLU::build(BuildContext& context) const { return context.input(); }

Needs PointwiseLayer::needs() const {
  const bool reads_input = gradient_reads_input();
  return {.inputs_in_backward = reads_input,
          .output_in_backward = !reads_input,
          .in_place = !reads_input,
          .gradient_in_place = true};
}

LeakyReluFunction LeakyReluFunction::read(JsonObject& object) {
  return {.negative_slope = object.number("negative_slope", LeakyReluFunction{}.negative_slope)};
}

void LeakyReluFunction::write(nlohmann::json& object) const {
  object["negative_slope"] = negative_slope;
}

void LeakyReluFunction::check(const BuildContext& context) const {
  if (!(negative_slope >= 0 && std::isfinite(negative_slope)))
    context.refuse("expected a negative_slope of at least 0",
                   fmt::format("got {}", negative_slope));
}

EluFunction EluFunction::read(JsonObject& object) {
  return {.alpha = object.number("alpha", EluFunction{}.alpha)};
}

void EluFunction::write(nlohmann::json& object) const { object["alpha"] = alpha; }

void EluFunction::check(const BuildContext& context) const {
  if (!(alpha >= 0 && std::isfinite(alpha)))
    context.refuse("expected an alpha of at least 0", fmt::format("got {}", alpha));
}

SiluFunction SiluFunction::read(JsonObject& object) {
  return {.beta = object.number("beta", SiluFunction{}.beta)};
}

void SiluFunction::write(nlohmann::json& object) const { object["beta"] = beta; }

void SiluFunction::check(const BuildContext& context) const {
  if (!(beta > 0 && std::isfinite(beta)))
    context.refuse("expected a beta above 0", fmt::format("got {}", beta));
}

HardTanhFunction HardTanhFunction::read(JsonObject& object) {
  const HardTanhFunction defaults;
  return {.min_value = object.number("min_value", defaults.min_value),
          .max_value = object.number("max_value", defaults.max_value)};
}

void HardTanhFunction::write(nlohmann::json& object) const {
  object["min_value"] = min_value;
  object["max_value"] = max_value;
}

void HardTanhFunction::check(const BuildContext& context) const {
  if (!(min_value < max_value) || !std::isfinite(min_value) || !std::isfinite(max_value))
    context.refuse("expected a min_value below max_value",
                   fmt::format("got {} and {}", min_value, max_value));
}

HardSigmoidFunction HardSigmoidFunction::read(JsonObject& object) {
  const HardSigmoidFunction defaults;
  return {.slope = object.number("slope", defaults.slope),
          .offset = object.number("offset", defaults.offset)};
}

void HardSigmoidFunction::write(nlohmann::json& object) const {
  object["slope"] = slope;
  object["offset"] = offset;
}

void HardSigmoidFunction::check(const BuildContext& context) const {
  if (!(slope > 0 && std::isfinite(slope) && std::isfinite(offset)))
    context.refuse("expected a slope above 0 and a finite offset",
                   fmt::format("got {} and {}", slope, offset));
}

RescalingFunction RescalingFunction::read(JsonObject& object) {
  const RescalingFunction defaults;
  return {.scale = object.number("scale", defaults.scale),
          .offset = object.number("offset", defaults.offset),
          .gradient_factor = object.number("gradient_factor", defaults.gradient_factor)};
}

void RescalingFunction::write(nlohmann::json& object) const {
  object["scale"] = scale;
  object["offset"] = offset;
  object["gradient_factor"] = gradient_factor;
}

void RescalingFunction::check(const BuildContext& context) const {
  if (!std::isfinite(scale) || !std::isfinite(offset) || !std::isfinite(scale * gradient_factor))
    context.refuse("expected a finite scale, offset and gradient_factor",
                   fmt::format("got {}, {} and {}", scale, offset, gradient_factor));
}

GeluFunction GeluFunction::read(JsonObject& object) {
  return {.approximate = object.flag("approximate", false)};
}

void GeluFunction::write(nlohmann::json& object) const { object["approximate"] = approximate; }

FakeQuantizeFunction FakeQuantizeFunction::read(JsonObject& object) {
  object.required("scale");
  const FakeQuantizeFunction defaults;
  return {.scale = object.number("scale", defaults.scale),
          .zero_point = static_cast<int>(object.integer("zero_point", defaults.zero_point)),
          .dtype = kInt8Types.parse(object.where(), object.text("dtype", "int8"))};
}

void FakeQuantizeFunction::write(nlohmann::json& object) const {
  object["scale"] = scale;
  object["zero_point"] = zero_point;
  object["dtype"] = kInt8Types.name(dtype);
}

void FakeQuantizeFunction::check(const BuildContext& context) const {
  if (!(scale >= std::numeric_limits<float>::min()) || !std::isfinite(scale))
    context.refuse("expected a scale above 0", fmt::format("got {}", scale));
  const int first = dtype == Int8Type::int8 ? -128 : 0;
  if (zero_point < first || zero_point > first + 255)
    context.refuse(fmt::format("expected a zero_point from {} to {}", first, first + 255),
                   fmt::format("got {}", zero_point));
}

Shape Dropout::build(BuildContext& context) const {
  if (!(options_.rate >= 0 && options_.rate < 1))
    context.refuse("expected a rate in [0, 1)", fmt::format("got {}", options_.rate));
  return context.input();
}

std::shared_ptr<const Layer> Dropout::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Dropout>(Options{.rate = object.number("rate", Options{}.rate)});
}

void Dropout::write(nlohmann::json& object) const { object["rate"] = options_.rate; }

Shape Flatten::build(BuildContext& context) const { return {element_count(context.input())}; }

std::unique_ptr<Operation> Flatten::compile(const CompileContext& /*context*/,
                                            Backend& /*backend*/) const {
  return nullptr;
}

Shape Add::build(BuildContext& context) const { return common_shape(context); }

std::optional<Broadcast> broadcast_of(const Shape& first, const Shape& second, std::int64_t batch) {
  Broadcast result;
  result.larger_input = element_count(first) >= element_count(second) ? 0 : 1;
  const Shape& larger = result.larger_input == 0 ? first : second;
  const Shape& smaller = result.larger_input == 0 ? second : first;
  if (larger.size() != smaller.size()) return std::nullopt;
  // The axes before those that repeat, those, and the others, where an extent of 1 in both shapes
  // belongs to any of them.
  std::int64_t Broadcast::*part = &Broadcast::outer;
  for (std::size_t axis = 0; axis < larger.size(); ++axis) {
    if (larger[axis] == smaller[axis]) {
      if (part == &Broadcast::repeats && larger[axis] != 1) part = &Broadcast::inner;
    } else if (smaller[axis] == 1 && part != &Broadcast::inner) {
      part = &Broadcast::repeats;
    } else {
      return std::nullopt;
    }
    result.*part *= larger[axis];
  }
  result.outer *= batch;
  return result;
}

Shape Multiply::build(BuildContext& context) const {
  const std::vector<Shape>& inputs = context.inputs();
  if (inputs.size() != 2 || inputs[0] == inputs[1]) return common_shape(context);
  const auto broadcast = broadcast_of(inputs[0], inputs[1], 1);
  if (!broadcast)
    context.refuse("expected inputs of one shape, or one with the extent 1 along neighboring axes",
                   fmt::format("got {} and {}", to_string(inputs[0]), to_string(inputs[1])));
  return inputs[broadcast->larger_input];
}

Shape Softmax::build(BuildContext& context) const { return context.row_input(); }

}  // namespace lockstep::inline v0::model
