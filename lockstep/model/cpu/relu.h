// max(x, 0) of arrays of float32 or bfloat16 on a CPU, with the threads of the replica.
#pragma once

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cpu {

/// output = input where input > 0, otherwise 0; NaN propagates. Optionally in place. oneDNN's ReLU
/// maps NaN to 0, which would hide that a network has diverged.
void relu(const TensorView& input, const TensorView& output);

/// input_gradient = output_gradient where output > 0, otherwise 0; optionally in place.
void relu_gradient(const TensorView& output, const TensorView& output_gradient,
                   const TensorView& input_gradient);

}  // namespace lockstep::inline v0::model::cpu
