// max(x, 0) of arrays of float32 or bfloat16 on a CPU, with the threads of the replica.
#pragma once

#include "lockstep/model/tensor.h"

namespace lockstep::model::cpu {

/// output = input where input > 0, otherwise 0; NaN of NaN. Optionally in place. oneDNN's ReLU
/// would make 0 of NaN, so that a diverged network had a finite loss.
void relu(const TensorView& input, const TensorView& output);

/// input_gradient = output_gradient where output > 0, otherwise 0; optionally in place.
void relu_gradient(const TensorView& output, const TensorView& output_gradient,
                   const TensorView& input_gradient);

}  // namespace lockstep::model::cpu
