// Kernels of additive attention. All functions return when the work is enqueued on `stream`. Blocks
// do not add to each other's results: bitwise reproducible.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "lockstep/model/layers/additive_attention/additive_attention.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// What a pass reads and writes. Inputs are queries, keys and values; gradients that are empty or
/// null are not computed.
struct AdditiveAttentionArrays {
  std::array<TensorView, 3> inputs;
  const std::int32_t* segments = nullptr;  ///< [batch, S]; null: no padding
  const float* scale = nullptr;            ///< [U]
  float* weights = nullptr;                ///< [batch, T, S]
  TensorView output;                       ///< [batch, T, D]
  TensorView output_gradient;              ///< [batch, T, D]
  std::array<TensorView, 3> gradients;     ///< gradients of the inputs
  float* scale_gradient = nullptr;         ///< [U]
  float* score_gradients = nullptr;        ///< [batch, T, S], scratch of backward
  float* scale_partials = nullptr;         ///< [batch, T, U], scratch of backward
};

/// Writes the weights and the output.
void attend_additively(const AdditiveAttentionArrays& arrays, const AdditiveAttentionSpec& spec,
                       cudaStream_t stream);
/// Writes the gradients.
void additive_attention_gradients(const AdditiveAttentionArrays& arrays,
                                  const AdditiveAttentionSpec& spec, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
