// Kernels of pooling over images [batch, height, width, channels]. All return when the work is on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/layers/window.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// Bytes that keep, for every output, which element of its window was the largest.
std::size_t largest_bytes(const WindowGeometry& window, std::int64_t batch);

/// The largest of each window, the first of equals; `largest`, null where nothing is kept, receives its place in the
/// window. NaNs in a window win.
void max_pool_forward(const TensorView& input, const WindowGeometry& window, std::int64_t batch,
                      const TensorView& output, void* largest, cudaStream_t stream);
/// Every input gathers from the windows that it was the largest of: no atomic additions, the same bits in every run.
void max_pool_backward(const TensorView& output_gradient, const void* largest, const WindowGeometry& window,
                       std::int64_t batch, const TensorView& input_gradient, cudaStream_t stream);

/// Mean of each window's elements inside the input.
void average_pool_forward(const TensorView& input, const WindowGeometry& window, std::int64_t batch,
                          const TensorView& output, cudaStream_t stream);
void average_pool_backward(const TensorView& output_gradient, const WindowGeometry& window, std::int64_t batch,
                           const TensorView& input_gradient, cudaStream_t stream);

}  // namespace lockstep::model::cuda
