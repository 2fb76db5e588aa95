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
  context.parameter("gamma", {input.back()}, {.kind = Initializer::Kind::constant, .value = 1},
                    false);
  if (centers_) context.parameter("beta", {input.back()}, {}, false);
  return input;
}

RowNormalizationSpec RowNormalization::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.rows = context.batch * element_count(input) / input.back(),
          .width = input.back(),
          .epsilon = epsilon_,
          .centers = centers_,
          .training = context.training};
}

void RowNormalization::write(nlohmann::json& object) const { object["epsilon"] = epsilon_; }

std::shared_ptr<const Layer> LayerNormalization::read(JsonObject& object,
                                                      const DataShape& /*data*/) {
  return std::make_shared<const LayerNormalization>(
      Options{.epsilon = object.number("epsilon", Options{}.epsilon)});
}

std::shared_ptr<const Layer> RMSNormalization::read(JsonObject& object, const DataShape& /*data*/) {
  return std::make_shared<const RMSNormalization>(
      Options{.epsilon = object.number("epsilon", Options{}.epsilon)});
}

}  // namespace lockstep::inline v0::model
