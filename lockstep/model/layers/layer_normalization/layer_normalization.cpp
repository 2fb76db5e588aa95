#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape RowNormalization::build(BuildContext& context) const {
  const Shape& input = context.row_input();
  if (!(epsilon_ > 0 && std::isfinite(epsilon_)))
    context.refuse("expected a positive epsilon", fmt::format("got {}", epsilon_));
  if (!steps_.scales && !steps_.shifts)
    context.refuse("expected use_scale, use_bias or both", "got neither");
  const auto declare = [&](const char* name, float initial) {
    if (steps_.trains)
      context.parameter(name, {input.back()},
                        {.kind = Initializer::Kind::constant, .value = initial}, false);
    else
      context.buffer(name, {input.back()}, initial);
  };
  if (steps_.scales) declare("gamma", 1);
  if (steps_.shifts) declare("beta", 0);
  return input;
}

RowNormalizationSpec RowNormalization::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.rows = context.batch * element_count(input) / input.back(),
          .width = input.back(),
          .epsilon = epsilon_,
          .normalizes = steps_.normalizes,
          .centers = steps_.normalizes && steps_.shifts,
          .scales = steps_.scales,
          .shifts = steps_.shifts,
          .trains = steps_.trains,
          .training = context.training};
}

void LayerNormalization::write(nlohmann::json& object) const { object["epsilon"] = epsilon_; }

void RMSNormalization::write(nlohmann::json& object) const { object["epsilon"] = epsilon_; }

void Scale::write(nlohmann::json& object) const {
  object["use_scale"] = steps_.scales;
  object["use_bias"] = steps_.shifts;
  object["trainable"] = steps_.trains;
}

std::shared_ptr<const Layer> LayerNormalization::read(JsonObject& object,
                                                      const DataShape& /*data*/) {
  return std::make_shared<const LayerNormalization>(
      Options{.epsilon = object.number("epsilon", Options{}.epsilon)});
}

std::shared_ptr<const Layer> RMSNormalization::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const RMSNormalization>(
      Options{.epsilon = object.number("epsilon", Options{}.epsilon)});
}

std::shared_ptr<const Layer> Scale::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const Scale>(Options{.use_scale = object.flag("use_scale", true),
                                               .use_bias = object.flag("use_bias", true),
                                               .trainable = object.flag("trainable", true)});
}

}  // namespace lockstep::inline v0::model
