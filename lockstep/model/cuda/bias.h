// Kernels used around matrix products and convolutions: biases, zero padding of images, and their
// rearrangement for convolutions with strides. All functions return when the work is enqueued on
// `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/layer/window.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// values[r, c] += bias[c] if `bias` is not empty, then max(., 0) if `relu`. `bias` has the same
/// type.
void add_bias(const TensorView& values, const TensorView& bias, bool relu, cudaStream_t stream);

/// sums[c] = sum over rows of values[r, c]. `partials` is scratch of partial_bytes(layout). Bitwise
/// reproducible.
void column_sums(const TensorView& values, const ChannelLayout& layout, void* partials, float* sums,
                 cudaStream_t stream);

/// `padded` [batch, top + height + bottom, left + width + right, channels] becomes `image` with the
/// window's zero padding.
void pad_image(const TensorView& image, const WindowGeometry& window, std::int64_t batch,
               const TensorView& padded, cudaStream_t stream);
/// The inverse: extracts the image from `padded`.
void crop_image(const TensorView& padded, const WindowGeometry& window, std::int64_t batch,
                const TensorView& image, cudaStream_t stream);

/// Transforms a convolution with strides into one without (space to depth): the pixels of a block
/// of stride x stride become the channels of one pixel, [vertical][horizontal][channel], followed
/// by channels of zeros. Zero padding becomes part of the image.
struct Folding {
  WindowGeometry window;         ///< window of the convolution with strides
  std::int64_t channels = 0;     ///< channels to keep; the others are zero
  WindowGeometry folded_window;  ///< window without strides; whole packs of channels
};

/// `folded` [batch, height, width, channels] of the folded window becomes `image` of the window.
void fold_image(const TensorView& image, const Folding& folding, std::int64_t batch,
                const TensorView& folded, cudaStream_t stream);
/// `folded` becomes `kernel`, which has the window's size and channels; taps that the window does
/// not have are zero.
void fold_kernel(const TensorView& kernel, const Folding& folding, const TensorView& folded,
                 cudaStream_t stream);
/// The inverse; channels that were not kept are zero.
void unfold_kernel(const TensorView& folded, const Folding& folding, const TensorView& kernel,
                   cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
