// Kernels of batch normalization over images with channels last: [rows, channels]. All functions
// return when the work is enqueued on `stream`. The order of summation depends only on the shape:
// the same bits in every run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// Writes this replica's moments of each channel to row `member` of `moments`, an array of
/// layout.size() with one row per replica. Here and below, `partials` is scratch of
/// partial_bytes(rows).
void batch_statistics(const TensorView& input, const ChannelLayout& rows, void* partials,
                      const MomentsLayout& layout, std::size_t member, float* moments,
                      cudaStream_t stream);

/// The same from existing sums over `rows` rows.
void moments_of_sums(const ChannelSums& sums, std::int64_t rows, const MomentsLayout& layout,
                     std::size_t member, float* moments, cudaStream_t stream);

/// Computes per channel the mean and 1 / sqrt(variance + epsilon) over all rows of `moments`, and
/// their count. Moves the moving statistics by 1 - momentum towards the batch statistics, the
/// variance with Bessel's correction. Without samples, only the count is written.
struct StatisticsArguments {
  MomentsLayout layout;
  const float* moments = nullptr;
  float epsilon = 0;
  float momentum = 0;
  float* moving_mean = nullptr;
  float* moving_variance = nullptr;
  float* means = nullptr;
  float* inverse_deviations = nullptr;
  float* count = nullptr;  ///< one float
};
void finish_statistics(const StatisticsArguments& arguments, cudaStream_t stream);

/// inverse_deviations[c] = 1 / sqrt(variances[c] + epsilon), for inference.
void invert_deviations(const float* variances, std::int64_t channels, float epsilon,
                       float* inverse_deviations, cudaStream_t stream);

/// Per channel, [channels].
struct ChannelScale {
  const float* means = nullptr;
  const float* inverse_deviations = nullptr;
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

/// output = (input - mean) * inverse_deviation * gamma + beta, plus `residual` if it is not empty,
/// then max(., 0) if `relu`.
void normalize(const TensorView& input, const TensorView& residual, const ChannelScale& scale,
               bool relu, std::int64_t channels, const TensorView& output, cudaStream_t stream);

/// sums[0 .. channels) = sum of g, sums[channels .. 2 channels) = sum of g * normalized input. g is
/// the gradient of the output; with `relu`, it is 0 where the output is not above 0. `output` is
/// read only with `relu`.
void gradient_sums(const TensorView& input, const TensorView& output,
                   const TensorView& output_gradient, bool relu, const ChannelScale& scale,
                   const ChannelLayout& layout, void* partials, float* sums, cudaStream_t stream);

/// input_gradient = gamma * inverse_deviation * (g - (sums[c] + normalized input * sums[channels +
/// c]) / count). `sums` and `count` (one float on the GPU) cover all samples of the statistics. If
/// `residual_gradient` is not empty, it receives g. Either output may alias the output's gradient.
void input_gradient(const TensorView& input, const TensorView& output,
                    const TensorView& output_gradient, bool relu, const ChannelScale& scale,
                    const float* sums, const float* count, std::int64_t channels,
                    const TensorView& input_gradient, const TensorView& residual_gradient,
                    cudaStream_t stream);

}  // namespace lockstep::model::cuda
