// Kernels around products: biases, and zeros around images. All return when the work is on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/layers/window.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// values[r, c] += bias[c] where `bias` is not empty, then max(., 0) where `relu`. `bias` is of the same type.
void add_bias(const TensorView& values, const TensorView& bias, bool relu, cudaStream_t stream);

/// sums[c] = sum over rows of values[r, c]; `partials` is scratch of partial_bytes(layout). The same bits in every run.
void column_sums(const TensorView& values, const ChannelLayout& layout, void* partials, float* sums,
                 cudaStream_t stream);

/// `padded` [batch, top + height + bottom, left + width + right, channels] is `image` with the window's zeros around
/// it.
void pad_image(const TensorView& image, const WindowGeometry& window, std::int64_t batch, const TensorView& padded,
               cudaStream_t stream);
/// The other way: the part of `padded` that is the image.
void crop_image(const TensorView& padded, const WindowGeometry& window, std::int64_t batch, const TensorView& image,
                cudaStream_t stream);

}  // namespace lockstep::model::cuda
