#include "lockstep/model/layers/batch_normalization/batch_normalization.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape BatchNormalization::build(BuildContext& context) const {
  const Shape& input = context.row_input();
  if (!(options_.momentum >= 0 && options_.momentum <= 1 && options_.epsilon > 0 &&
        std::isfinite(options_.epsilon)))
    context.refuse("expected a momentum in [0, 1] and a positive epsilon",
                   fmt::format("got {} and {}", options_.momentum, options_.epsilon));
  if (!std::isfinite(options_.initial_gamma))
    context.refuse("expected a finite initial_gamma",
                   fmt::format("got {}", options_.initial_gamma));
  const std::int64_t channels = input.back();
  context.parameter("gamma", {channels},
                    {.kind = Initializer::Kind::constant, .value = options_.initial_gamma}, false);
  context.parameter("beta", {channels}, {}, false);
  context.buffer("moving_mean", {channels}, 0);
  context.buffer("moving_variance", {channels}, 1);
  return input;
}

BatchNormalizationSpec BatchNormalization::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.rows = context.batch * element_count(input) / input.back(),
          .channels = input.back(),
          .epsilon = options_.epsilon,
          .momentum = options_.momentum,
          .add = context.fused_add,
          .relu = context.fused_relu,
          .training = context.has_backward(),
          .moving = !context.training || context.frozen,
          .statistics = context.input_statistics};
}

std::shared_ptr<const Layer> BatchNormalization::read(JsonObject& object,
                                                      const DataShape& /*data*/) {
  const Options standard;
  return std::make_shared<const BatchNormalization>(
      Options{.momentum = object.number("momentum", standard.momentum),
              .epsilon = object.number("epsilon", standard.epsilon),
              .initial_gamma = object.number("initial_gamma", standard.initial_gamma)});
}

void BatchNormalization::write(nlohmann::json& object) const {
  object["momentum"] = options_.momentum;
  object["epsilon"] = options_.epsilon;
  object["initial_gamma"] = options_.initial_gamma;
}

}  // namespace lockstep::inline v0::model
