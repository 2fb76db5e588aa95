#include "lockstep/model/layers/additive_attention/additive_attention.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

namespace lockstep::inline v0::model {

Shape AdditiveAttention::build(BuildContext& context) const {
  const std::vector<Shape>& inputs = context.inputs();
  if (inputs.size() < 3 || inputs.size() > 4)
    context.refuse("expected queries, keys and values, and optionally segments",
                   fmt::format("got {} inputs", inputs.size()));
  for (std::size_t k = 0; k < 3; ++k)
    if (inputs[k].size() != 2)
      context.refuse("expected inputs [positions, elements]",
                     fmt::format("got {}", to_string(inputs[k])));
  const Shape& queries = inputs[0];
  const Shape& keys = inputs[1];
  const Shape& values = inputs[2];
  if (keys[1] != queries[1])
    context.refuse(fmt::format("expected keys [S, {}], as wide as the queries", queries[1]),
                   fmt::format("got {}", to_string(keys)));
  if (values[0] != keys[0])
    context.refuse(fmt::format("expected values [{}, D], one for each key", keys[0]),
                   fmt::format("got {}", to_string(values)));
  if (inputs.size() == 4 && inputs[3] != Shape{keys[0]})
    context.refuse(fmt::format("expected segments [{}] of the keys", keys[0]),
                   fmt::format("got {}", to_string(inputs[3])));
  context.parameter(
      "scale", {queries[1]},
      {.kind = Initializer::Kind::glorot_uniform, .fan_in = queries[1], .fan_out = queries[1]});
  return context.within_limits({queries[0], values[1]});
}

AdditiveAttentionSpec AdditiveAttention::spec(const CompileContext& context) const {
  return {.batch = context.batch,
          .queries = context.output[0],
          .keys = context.inputs[1][0],
          .units = context.inputs[0][1],
          .width = context.output[1],
          .has_segments = context.inputs.size() == 4,
          .training = context.has_backward()};
}

std::int64_t AdditiveAttention::flop(const CompileContext& context) const {
  const AdditiveAttentionSpec s = spec(context);
  return 2 * s.batch * s.queries * s.keys * (s.units + s.width);
}

Traits AdditiveAttention::traits() const {
  return {.index_count = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1};
}

std::optional<std::size_t> AdditiveAttention::index_input(std::size_t inputs) const {
  return inputs == 4 ? std::optional<std::size_t>(3) : std::nullopt;
}

}  // namespace lockstep::inline v0::model
