// Elementwise kernels. All functions return when the work is enqueued on `stream`. Views are on its
// GPU, 16-byte aligned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "lockstep/base/pixels.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// max(x, 0), optionally in place. NaN propagates.
void relu_forward(const TensorView& input, const TensorView& output, cudaStream_t stream);
/// input_gradient = output_gradient where output > 0, otherwise 0; optionally in place.
void relu_backward(const TensorView& output, const TensorView& output_gradient,
                   const TensorView& input_gradient, cudaStream_t stream);

/// output = a + b, or max(a + b, 0); the output may alias an input.
void add(const TensorView& a, const TensorView& b, bool relu, const TensorView& output,
         cudaStream_t stream);

/// output = a * b; the output may alias an input.
void multiply(const TensorView& a, const TensorView& b, const TensorView& output,
              cudaStream_t stream);

/// Converts between any two types.
void convert(const TensorView& from, const TensorView& to, cudaStream_t stream);
/// Converts arrays of `precision` to float32, up to 32 per kernel.
void widen_all(std::span<const Widening> arrays, Precision precision, cudaStream_t stream);

/// Writes `words` from host memory to `to`. They are kernel arguments, which a launch copies.
void write_words(std::span<const std::uint32_t> words, std::uint32_t* to, cudaStream_t stream);

/// Pseudorandom values in [-1, 1), reproducible.
void fill_randomly(const TensorView& to, cudaStream_t stream);

/// to[i] = pixels[i] / 255, normalized: device::pixels_to_features with the same roundings, then
/// rounded to the type of `to`.
void convert_pixels(const std::uint8_t* pixels, const ChannelNormalization& normalization,
                    const TensorView& to, cudaStream_t stream);

/// convert_pixels() for images of `channels` channels, padded with channels of zeros: `to`, in 16
/// bits, has min_channels() of its type (channels.h).
void convert_pixels_padded(const std::uint8_t* pixels, std::int64_t channels,
                           const ChannelNormalization& normalization, const TensorView& to,
                           cudaStream_t stream);

/// Converts [rows, from_channels] to [rows, to_channels], of any types: drops channels at the end,
/// or adds channels of zeros.
void convert_channels(const TensorView& from, std::int64_t from_channels, const TensorView& to,
                      std::int64_t to_channels, cudaStream_t stream);

/// The random key of a layer in one pass, in GPU memory, so that a recorded pass reads the current
/// values.
struct PassKey {
  std::uint64_t key = 0;           ///< device::random_key(seed, layer, step)
  std::uint64_t first_sample = 0;  ///< index in the global batch
};

/// output = input / (1 - rate) where the mask is set, otherwise 0; the mask equals the CPU's for
/// the same key. Used for forward and backward; optionally in place. `features` is the number of
/// elements per sample.
void dropout(const TensorView& input, const PassKey* key, std::int64_t features, float rate,
             const TensorView& output, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
