#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/model/layers/json_object.h"

namespace lockstep::model {

Shape LayerNormalization::build(BuildContext& context) const {
  const Shape& input = context.input();
  if (!(options_.epsilon > 0))
    context.refuse("expected a positive epsilon", fmt::format("got {}", options_.epsilon));
  context.parameter("gamma", {input.back()}, {.kind = Initializer::Kind::constant, .value = 1},
                    false);
  context.parameter("beta", {input.back()}, {}, false);
  return input;
}

LayerNormalizationSpec LayerNormalization::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.rows = context.batch * element_count(input) / input.back(),
          .width = input.back(),
          .epsilon = options_.epsilon,
          .training = context.training};
}

std::shared_ptr<const Layer> LayerNormalization::read(JsonObject& object,
                                                      const DataShape& /*data*/) {
  return std::make_shared<const LayerNormalization>(
      Options{.epsilon = object.number("epsilon", Options{}.epsilon)});
}

void LayerNormalization::write(nlohmann::json& object) const {
  object["epsilon"] = options_.epsilon;
}

}  // namespace lockstep::model
