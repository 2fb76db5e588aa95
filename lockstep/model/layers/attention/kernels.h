// Kernels of attention. All functions return when the work is enqueued on `stream`. Blocks do not
// add to each other's results: bitwise reproducible.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// What a pass reads and writes. Queries, keys and values are three views, or parts of the same one
/// (AttentionSpec::part); `gradients` that are empty are not computed.
struct AttentionArrays {
  std::array<TensorView, 3> inputs;
  TensorView output;                       ///< [batch, T, heads, E]
  TensorView output_gradient;              ///< [batch, T, heads, E]
  std::array<TensorView, 3> gradients;     ///< gradients of the inputs
  const std::int32_t* segments = nullptr;  ///< [batch, T]; null: none
  float* divisors = nullptr;               ///< AttentionSpec::saved_bytes(); null in inference
  float* products = nullptr;               ///< [batch, heads, T], scratch of backward
  void* rotations = nullptr;               ///< scratch of rotation_bytes(); null without rotary
};

/// Bytes of the cosines and sines of the angles by which queries and keys are rotated.
std::size_t rotation_bytes(const AttentionSpec& spec);
/// Writes them to `rotations`.
void write_rotations(const AttentionSpec& spec, void* rotations, cudaStream_t stream);

/// Writes the output, and to `divisors` the logarithms of the divisors of the softmaxes.
void attend(const AttentionArrays& arrays, const AttentionSpec& spec, cudaStream_t stream);
/// Writes the gradients.
void attention_gradients(const AttentionArrays& arrays, const AttentionSpec& spec,
                         cudaStream_t stream);

/// Bytes of the keys, rotated, and the values [batch, positions, key_value_heads, E] of a sequence
/// that is computed in parts (AttentionSpec::cached), in the type `precision`.
std::size_t cache_bytes(const AttentionSpec& spec, Precision precision);
/// Adds the keys and values of the rows of `arrays`, which begin at `position`, to `cache`, and
/// writes the output of these rows.
void attend_in_cache(const AttentionArrays& arrays, const AttentionSpec& spec, std::byte* cache,
                     std::int64_t position, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
