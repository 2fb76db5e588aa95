// Kernels of the normalization of rows, [rows, width]. All functions return when the work is
// enqueued on `stream`. The order of summation depends only on the layout: bitwise reproducible.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// output = (input - mean) * inverse_deviation * gamma + beta, each row with its own statistics,
/// which are written to `statistics` [rows] unless it is null. Unless spec.centers, the mean is 0;
/// unless spec.normalizes, the inverse deviation is 1. Null parameters are 1 and 0.
void normalize_samples(const TensorView& input, const RowNormalizationSpec& spec,
                       const float* gamma, const float* beta, const TensorView& output,
                       RowStatistics* statistics, cudaStream_t stream);

/// The gradients of gamma and of beta, [width], unless they are null. `layout` is that of [rows,
/// width], `partials` scratch of partial_bytes(layout). Null statistics are a mean of 0 and an
/// inverse deviation of 1.
void scale_gradients(const TensorView& input, const TensorView& output_gradient,
                     const RowStatistics* statistics, const ChannelLayout& layout, void* partials,
                     float* gamma_gradient, float* beta_gradient, cudaStream_t stream);

/// The gradient of the input; may alias the output's.
void sample_gradients(const TensorView& input, const TensorView& output_gradient,
                      const RowStatistics* statistics, const RowNormalizationSpec& spec,
                      const float* gamma, const TensorView& input_gradient, cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
