// Kernels of pooling over positions. All functions return when the work is enqueued on `stream`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Mean of the positions [samples, positions, width] whose segment [samples, positions] is not 0,
/// or of all positions if `segments` is empty.
void sequence_mean_forward(const TensorView& input, std::span<const std::int32_t> segments,
                           const SequencePoolingSpec& spec, const TensorView& output,
                           cudaStream_t stream);
void sequence_mean_backward(const TensorView& output_gradient,
                            std::span<const std::int32_t> segments, const SequencePoolingSpec& spec,
                            const TensorView& input_gradient, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
