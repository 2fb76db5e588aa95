#include "lockstep/model/layers/dense/dense.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/model/layers/json_object.h"

namespace lockstep::model {

Shape Dense::build(BuildContext& context) const {
  const Shape& input = context.input();
  if (input.size() != 1)
    context.refuse("expected an input [features]",
                   fmt::format("got {}; add a flatten layer before it", to_string(input)));
  if (options_.units <= 0)
    context.refuse("expected at least one unit", fmt::format("got {}", options_.units));
  context.parameter("kernel", {options_.units, input[0]},
                    {.kind = options_.initializer, .fan_in = input[0], .fan_out = options_.units});
  if (options_.use_bias) context.parameter("bias", {options_.units}, {}, false);
  return {options_.units};
}

DenseSpec Dense::spec(const CompileContext& context) const {
  return {.batch = context.batch,
          .inputs = context.inputs.front().front(),
          .units = options_.units,
          .bias = options_.use_bias,
          .relu = context.fused_relu,
          .training = context.has_backward(),
          .input_gradient = context.input_gradients};
}

std::int64_t Dense::flop(const CompileContext& context) const {
  const DenseSpec dense = spec(context);
  return 2 * dense.batch * dense.inputs * dense.units;
}

std::shared_ptr<const Layer> Dense::read(JsonObject& object, const DataShape& data) {
  const bool is_output = object.required("units") == "classes";
  if (is_output && !data.classes)
    object.refuse("expected a data set with classes for \"units\": \"classes\"",
                  "the number of classes is not known");
  return std::make_shared<const Dense>(
      Options{.units = is_output ? *data.classes : object.count("units"),
              .use_bias = object.flag("use_bias", true),
              .initializer = object.initializer("initializer")});
}

void Dense::write(nlohmann::json& object) const {
  object["units"] = options_.units;
  object["use_bias"] = options_.use_bias;
  object["initializer"] = to_string(options_.initializer);
}

}  // namespace lockstep::model
