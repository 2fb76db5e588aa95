#include "lockstep/model/layers/dense.h"

#include <fmt/format.h>

#include "lockstep/model/backend.h"

namespace lockstep::model {

Shape Dense::build(BuildContext& context) const {
  const Shape& input = context.input();
  if (input.size() != 1)
    context.refuse("expected an input [features]",
                   fmt::format("got {}; add a flatten layer before it", to_string(input)));
  if (options_.units <= 0) context.refuse("expected at least one unit", fmt::format("got {}", options_.units));
  context.parameter("kernel", {options_.units, input[0]},
                    {.kind = options_.initializer, .fan_in = input[0], .fan_out = options_.units});
  if (options_.use_bias) context.parameter("bias", {options_.units}, {}, false);
  return {options_.units};
}

std::unique_ptr<Operation> Dense::compile(const CompileContext& context, Backend& backend) const {
  return backend.dense({.batch = context.batch,
                        .inputs = context.inputs.front().front(),
                        .units = options_.units,
                        .bias = options_.use_bias,
                        .relu = context.fused_relu,
                        .training = context.training,
                        .input_gradient = context.input_gradients});
}

}  // namespace lockstep::model
