#include "lockstep/model/layers/dense/dense.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape Dense::build(BuildContext& context) const {
  Shape output = context.row_input();
  const std::int64_t inputs = output.back();
  if (options_.units <= 0)
    context.refuse("expected at least one unit", fmt::format("got {}", options_.units));
  context.parameter("kernel", {options_.units, inputs},
                    context.normal_or(options_.stddev, {.kind = options_.initializer,
                                                        .fan_in = inputs,
                                                        .fan_out = options_.units}));
  if (options_.use_bias) context.parameter("bias", {options_.units}, {}, false);
  output.back() = options_.units;
  return output;
}

Shape TiedDense::build(BuildContext& context) const {
  Shape output = context.row_input();
  const Shape& table = context.shared_parameter(options_.to);
  if (output.back() != table[1])
    context.refuse(fmt::format("expected an input [..., {}], the dimension of the embedding {}",
                               table[1], options_.to),
                   fmt::format("got {}", to_string(output)));
  output.back() = table[0];
  if (options_.use_bias) context.parameter("bias", {output.back()}, {}, false);
  return output;
}

DenseSpec FullyConnected::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.rows = context.batch * element_count(input) / input.back(),
          .inputs = input.back(),
          .units = context.output.back(),
          .bias = use_bias_,
          .relu = context.fused_relu,
          .training = context.has_backward(),
          .input_gradient = context.input_gradients,
          .loss_rows = context.loss_rows};
}

std::int64_t FullyConnected::flop(const CompileContext& context) const {
  const DenseSpec dense = spec(context);
  return 2 * dense.rows * dense.inputs * dense.units;
}

std::shared_ptr<const Layer> Dense::read(JsonObject& object, const DataShape& data) {
  const bool is_output = object.required("units") == "classes";
  if (is_output && !data.classes)
    object.refuse("expected a data set with classes for \"units\": \"classes\"",
                  "the number of classes is not known");
  return std::make_shared<const Dense>(
      Options{.units = is_output ? *data.classes : object.count("units"),
              .use_bias = object.flag("use_bias", true),
              .initializer = object.initializer("initializer"),
              .stddev = object.number("stddev", 0)});
}

void Dense::write(nlohmann::json& object) const {
  object["units"] = options_.units;
  object["use_bias"] = options_.use_bias;
  object["initializer"] = to_string(options_.initializer);
  if (options_.stddev > 0) object["stddev"] = options_.stddev;
}

std::shared_ptr<const Layer> TiedDense::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const TiedDense>(
      Options{.to = object.text("to"), .use_bias = object.flag("use_bias", false)});
}

void TiedDense::write(nlohmann::json& object) const {
  object["to"] = options_.to;
  object["use_bias"] = options_.use_bias;
}

}  // namespace lockstep::inline v0::model
