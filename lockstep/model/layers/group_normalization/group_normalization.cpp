#include "lockstep/model/layers/group_normalization/group_normalization.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/model/layer/json_object.h"

namespace lockstep::inline v0::model {

Shape GroupNormalization::build(BuildContext& context) const {
  const Shape& input = context.row_input();
  if (options_.groups < 1 || input.back() % options_.groups != 0)
    context.refuse("expected groups that divide the channels",
                   fmt::format("got {} groups, {} channels", options_.groups, input.back()));
  if (!(options_.epsilon > 0 && std::isfinite(options_.epsilon)))
    context.refuse("expected a positive epsilon", fmt::format("got {}", options_.epsilon));
  if (options_.scale)
    context.parameter("gamma", {input.back()}, {.kind = Initializer::Kind::constant, .value = 1},
                      false);
  if (options_.center) context.parameter("beta", {input.back()}, {}, false);
  return input;
}

GroupNormalizationSpec GroupNormalization::spec(const CompileContext& context) const {
  const Shape& input = context.inputs.front();
  return {.samples = context.batch,
          .positions = element_count(input) / input.back(),
          .channels = input.back(),
          .groups = options_.groups,
          .epsilon = options_.epsilon,
          .scale = options_.scale,
          .center = options_.center,
          .training = context.training};
}

std::shared_ptr<const Layer> GroupNormalization::read(JsonObject& object,
                                                      const DataShape& /*data*/) {
  const Options defaults;
  return std::make_shared<const GroupNormalization>(
      Options{.groups = object.count("groups", defaults.groups),
              .epsilon = object.number("epsilon", defaults.epsilon),
              .scale = object.flag("scale", defaults.scale),
              .center = object.flag("center", defaults.center)});
}

void GroupNormalization::write(nlohmann::json& object) const {
  object["groups"] = options_.groups;
  object["epsilon"] = options_.epsilon;
  object["scale"] = options_.scale;
  object["center"] = options_.center;
}

}  // namespace lockstep::inline v0::model
