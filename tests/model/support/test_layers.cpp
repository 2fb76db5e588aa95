#include "tests/model/support/test_layers.h"

#include <algorithm>

namespace lockstep::inline v0::model {

Shape Shift::build(BuildContext& context) const {
  context.parameter("offset", context.input(), {});
  return context.input();
}

Needs Shift::needs(const CompileContext& /*context*/) const {
  return {.inputs_in_backward = false, .output_in_backward = false};
}

void Shift::forward(const Tensors& tensors, const PassContext& /*pass*/) const {
  const auto offset = tensors.parameters[0];
  for (std::size_t i = 0; i < tensors.output.size(); ++i)
    tensors.output[i] = tensors.inputs[0][i] + offset[i % offset.size()];
}

void Shift::backward(const Tensors& tensors, const PassContext& /*pass*/) const {
  const auto gradient = tensors.parameter_gradients[0];
  std::ranges::fill(gradient, 0.0f);
  for (std::size_t i = 0; i < tensors.output_gradient.size(); ++i)
    gradient[i % gradient.size()] += tensors.output_gradient[i];
  if (!tensors.input_gradients[0].empty())
    std::ranges::copy(tensors.output_gradient, tensors.input_gradients[0].begin());
}

Needs Probe::needs(const CompileContext& /*context*/) const {
  return {.inputs_in_backward = false, .output_in_backward = false};
}

void Probe::forward(const Tensors& tensors, const PassContext& pass) const {
  recording_->values.assign(tensors.inputs[0].begin(), tensors.inputs[0].end());
  recording_->training = pass.training;
  std::ranges::copy(tensors.inputs[0], tensors.output.begin());
}

void Probe::backward(const Tensors& tensors, const PassContext& /*pass*/) const {
  recording_->gradient.assign(tensors.output_gradient.begin(), tensors.output_gradient.end());
  if (!tensors.input_gradients[0].empty())
    std::ranges::copy(tensors.output_gradient, tensors.input_gradients[0].begin());
}

}  // namespace lockstep::inline v0::model
