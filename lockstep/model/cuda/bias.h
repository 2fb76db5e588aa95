// Kernels used around matrix products: biases, and zero padding of images. All functions return
// when the work is enqueued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/layers/window.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// values[r, c] += bias[c] if `bias` is not empty, then max(., 0) if `relu`. `bias` has the same
/// type.
void add_bias(const TensorView& values, const TensorView& bias, bool relu, cudaStream_t stream);

/// sums[c] = sum over rows of values[r, c]. `partials` is scratch of partial_bytes(layout). The
/// same bits in every run.
void column_sums(const TensorView& values, const ChannelLayout& layout, void* partials, float* sums,
                 cudaStream_t stream);

/// `padded` [batch, top + height + bottom, left + width + right, channels] becomes `image` with the
/// window's zero padding.
void pad_image(const TensorView& image, const WindowGeometry& window, std::int64_t batch,
               const TensorView& padded, cudaStream_t stream);
/// The inverse: extracts the image from `padded`.
void crop_image(const TensorView& padded, const WindowGeometry& window, std::int64_t batch,
                const TensorView& image, cudaStream_t stream);

}  // namespace lockstep::model::cuda
