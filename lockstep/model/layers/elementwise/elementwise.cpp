#include "lockstep/model/layers/elementwise/elementwise.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/model/layer/json_object.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/layers/elementwise/gelu.h"
#include "lockstep/model/layers/elementwise/leaky_relu.h"

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

Shape Multiply::build(BuildContext& context) const { return common_shape(context); }

Shape Softmax::build(BuildContext& context) const { return context.row_input(); }

}  // namespace lockstep::inline v0::model
