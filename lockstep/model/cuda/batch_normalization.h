// Kernels of batch normalization over images with the channels innermost: [rows, channels]. All return when the work is
// on `stream`. Sums are taken in an order that the shape alone decides: the same bits in every run.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/batch_statistics.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model::cuda {

/// What this replica knows of its samples of each channel, written into its row `member` of `moments`, an array of
/// layout.size() that has the replicas' rows one behind the other. `partials` is scratch of partial_bytes(rows), here
/// and below.
void batch_statistics(const TensorView& input, const ChannelLayout& rows, void* partials, const MomentsLayout& layout,
                      std::size_t member, float* moments, cudaStream_t stream);

/// The same of sums that somebody else has taken over `rows` rows.
void moments_of_sums(const ChannelSums& sums, std::int64_t rows, const MomentsLayout& layout, std::size_t member,
                     float* moments, cudaStream_t stream);

/// Per channel: mean and 1 / sqrt(variance + epsilon) of all rows of `moments`, and their count; the moving statistics
/// are brought forward by 1 - momentum towards the batch's, the variance with Bessel's correction. Nothing changes but
/// the count where there is no sample.
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
void invert_deviations(const float* variances, std::int64_t channels, float epsilon, float* inverse_deviations,
                       cudaStream_t stream);

/// Per channel, [channels].
struct ChannelScale {
  const float* means = nullptr;
  const float* inverse_deviations = nullptr;
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

/// output = (input - mean) * inverse_deviation * gamma + beta, plus `residual` where it is not empty, then max(., 0)
/// where `relu`.
void normalize(const TensorView& input, const TensorView& residual, const ChannelScale& scale, bool relu,
               std::int64_t channels, const TensorView& output, cudaStream_t stream);

/// sums[0 .. channels) = sum of g, sums[channels .. 2 channels) = sum of g * normalized input, where g is the gradient
/// of the output, or with `relu` that where the output is above 0. `output` is read with `relu` alone.
void gradient_sums(const TensorView& input, const TensorView& output, const TensorView& output_gradient, bool relu,
                   const ChannelScale& scale, const ChannelLayout& layout, void* partials, float* sums,
                   cudaStream_t stream);

/// input_gradient = gamma * inverse_deviation * (g - (sums[c] + normalized input * sums[channels + c]) / count); `sums`
/// and `count`, one float on the GPU, are of all samples that the statistics are of. `residual_gradient`, where it is
/// not empty, becomes g. Either may be the output's gradient.
void input_gradient(const TensorView& input, const TensorView& output, const TensorView& output_gradient, bool relu,
                    const ChannelScale& scale, const float* sums, const float* count, std::int64_t channels,
                    const TensorView& input_gradient, const TensorView& residual_gradient, cudaStream_t stream);

}  // namespace lockstep::model::cuda
