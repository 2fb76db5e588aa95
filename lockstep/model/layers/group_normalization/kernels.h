// Kernels of the normalization of groups. All functions return when the work is enqueued on
// `stream`. The order of summation depends only on the shape: bitwise reproducible.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/model/layers/group_normalization/group_normalization.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Normalizes each group, then scales by gamma and adds beta unless they are null. Writes the
/// statistics [samples, groups] unless `statistics` is null.
void normalize_groups(const TensorView& input, const GroupNormalizationSpec& spec,
                      const float* gamma, const float* beta, const TensorView& output,
                      GroupStatistics* statistics, cudaStream_t stream);

/// The gradients of gamma and of beta, [channels], unless they are null.
void group_scale_gradients(const TensorView& input, const TensorView& output_gradient,
                           const GroupStatistics* statistics, const GroupNormalizationSpec& spec,
                           float* gamma_gradient, float* beta_gradient, cudaStream_t stream);

/// The gradient of the input; may alias the output's.
void group_input_gradients(const TensorView& input, const TensorView& output_gradient,
                           const GroupStatistics* statistics, const GroupNormalizationSpec& spec,
                           const float* gamma, const TensorView& input_gradient,
                           cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
