// Kernels of bilinear interpolation between the pixels of images [batch, height, width, channels].
// All functions return when the work is enqueued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/model/layers/pooling/bilinear.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// The images of `input` enlarged.
void bilinear_forward(const TensorView& input, const BilinearSpec& spec, const TensorView& output,
                      cudaStream_t stream);
/// Every input gathers from the outputs that read it: bitwise reproducible.
void bilinear_backward(const TensorView& output_gradient, const BilinearSpec& spec,
                       const TensorView& input_gradient, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
