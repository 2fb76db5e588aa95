// Kernels that work element by element. All return when the work is on `stream`; views are on its GPU, 16-byte aligned.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "lockstep/base/pixels.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// max(x, 0); in place or not. A NaN stays one.
void relu_forward(const TensorView& input, const TensorView& output, cudaStream_t stream);
/// input_gradient = output_gradient where output > 0, else 0; in place or not.
void relu_backward(const TensorView& output, const TensorView& output_gradient, const TensorView& input_gradient,
                   cudaStream_t stream);

/// output = a + b, or max(a + b, 0); the output may be one of them.
void add(const TensorView& a, const TensorView& b, bool relu, const TensorView& output, cudaStream_t stream);

/// Between any two types.
void convert(const TensorView& from, const TensorView& to, cudaStream_t stream);

/// to[i] = pixels[i] / 255, normalized: device::pixels_to_features with the same roundings, then that of `to`.
void convert_pixels(const std::uint8_t* pixels, const ChannelNormalization& normalization, const TensorView& to,
                    cudaStream_t stream);

/// What one pass of dropout draws its mask from, in memory of the GPU, so that a recorded pass follows it.
struct DropoutKey {
  std::uint64_t key = 0;           ///< device::random_key(seed, layer, step)
  std::uint64_t first_sample = 0;  ///< index in the global batch
};

/// output = input / (1 - rate) where the mask lets it pass, else 0: the mask of the CPU for the same key. Forward and
/// backward alike; in place or not. `features` elements a sample.
void dropout(const TensorView& input, const DropoutKey* key, std::int64_t features, float rate,
             const TensorView& output, cudaStream_t stream);

}  // namespace lockstep::model::cuda
