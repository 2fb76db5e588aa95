#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"

#include <fmt/format.h>

#include <limits>

namespace lockstep::inline v0::model {

Shape GlobalAveragePooling1D::build(BuildContext& context) const {
  const std::vector<Shape>& inputs = context.inputs();
  if (inputs.empty() || inputs.size() > 2)
    context.refuse("expected 1 input, and optionally segments",
                   fmt::format("got {} inputs", inputs.size()));
  const Shape& values = inputs.front();
  if (values.size() != 2)
    context.refuse("expected an input [positions, width]",
                   fmt::format("got {}", to_string(values)));
  if (inputs.size() == 2 && inputs[1] != Shape{values[0]})
    context.refuse(fmt::format("expected segments [{}]", values[0]),
                   fmt::format("got {}", to_string(inputs[1])));
  return {values[1]};
}

Traits GlobalAveragePooling1D::traits() const {
  return {.index_count = std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1};
}

std::optional<std::size_t> GlobalAveragePooling1D::index_input(std::size_t inputs) const {
  return inputs == 2 ? std::optional<std::size_t>(1) : std::nullopt;
}

SequencePoolingSpec GlobalAveragePooling1D::spec(const CompileContext& context) const {
  const Shape& values = context.inputs.front();
  return {.samples = context.batch,
          .positions = values[0],
          .width = values[1],
          .has_segments = context.inputs.size() == 2};
}

}  // namespace lockstep::inline v0::model
