// Kernels of pointwise layers.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/model/layers/elementwise/pointwise.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Applies the function of `layer` to each element, optionally in place.
void pointwise_forward(const PointwiseLayer& layer, const TensorView& input,
                       const TensorView& output, cudaStream_t stream);
/// The gradient of its input, optionally in place. `values` is its output, or its input if
/// PointwiseLayer::gradient_reads_input().
void pointwise_backward(const PointwiseLayer& layer, const TensorView& values,
                        const TensorView& output_gradient, const TensorView& input_gradient,
                        cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
