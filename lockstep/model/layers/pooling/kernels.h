// Kernels of pooling over images [batch, height, width, channels]. All functions return when the
// work is enqueued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/layer/window.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Bytes needed to store, for every output, the position of the maximum in its window.
std::size_t largest_bytes(const WindowGeometry& window, std::int64_t batch);

/// Maximum of each window, the first in case of ties. `largest` receives its position in the
/// window, unless it is null. A NaN in a window wins.
void max_pool_forward(const TensorView& input, const WindowGeometry& window, std::int64_t batch,
                      const TensorView& output, void* largest, cudaStream_t stream);
/// Every input gathers from the windows of which it was the maximum: no atomic additions, bitwise
/// reproducible.
void max_pool_backward(const TensorView& output_gradient, const void* largest,
                       const WindowGeometry& window, std::int64_t batch,
                       const TensorView& input_gradient, cudaStream_t stream);

/// Mean of each window's elements inside the input, times `scale`.
void average_pool_forward(const TensorView& input, const WindowGeometry& window, std::int64_t batch,
                          float scale, const TensorView& output, cudaStream_t stream);
void average_pool_backward(const TensorView& output_gradient, const WindowGeometry& window,
                           std::int64_t batch, float scale, const TensorView& input_gradient,
                           cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
