// Kernels of pointwise layers and of products with repetitions.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/model/layers/elementwise/elementwise.h"
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

/// product[o, r, i] = larger[o, r, i] * smaller[o, i]. `product` may alias `larger`.
void multiply_repeated(const TensorView& larger, const TensorView& smaller,
                       const Broadcast& broadcast, const TensorView& product, cudaStream_t stream);
/// sums[o, i] = the sum over r of a[o, r, i] * b[o, r, i], always in the same order.
void sum_products(const TensorView& a, const TensorView& b, const Broadcast& broadcast,
                  const TensorView& sums, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
