// Kernels of batch normalization over images with channels last: [rows, channels]. All functions
// return when the work is enqueued on `stream`. The order of summation depends only on the layout,
// that is on shape, type and the number of multiprocessors: bitwise reproducible.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Arguments for computing statistics from the moments over all rows of `moments`: per channel the
/// mean and 1 / sqrt(variance + epsilon), and their count. Moves the moving statistics by 1 -
/// momentum towards the batch statistics, the variance with Bessel's correction. Without samples,
/// only the count is written.
struct StatisticsArguments {
  MomentsLayout layout;
  /// An array of layout.size() with one row per replica. Null for a single replica: its moments are
  /// finished where they are computed.
  float* moments = nullptr;
  float epsilon = 0;
  float momentum = 0;
  float* moving_mean = nullptr;
  float* moving_variance = nullptr;
  float* means = nullptr;
  float* inverse_deviations = nullptr;
  float* count = nullptr;  ///< one float
};

/// Computes this replica's moments of each channel: writes them to row `member` of
/// arguments.moments, or finishes them. Here and below, `partials` is scratch of
/// partial_bytes(layout), and `layout` has the type of `input`.
void batch_statistics(const TensorView& input, const ChannelLayout& layout, void* partials,
                      const StatisticsArguments& arguments, std::size_t member,
                      cudaStream_t stream);

/// batch_statistics() from existing sums over `rows` rows.
void moments_of_sums(const ChannelSums& sums, std::int64_t rows,
                     const StatisticsArguments& arguments, std::size_t member, cudaStream_t stream);

/// Finishes the moments in arguments.moments.
void finish_statistics(const StatisticsArguments& arguments, cudaStream_t stream);

/// inverse_deviations[c] = 1 / sqrt(variances[c] + epsilon), for inference.
void invert_deviations(const float* variances, std::int64_t channels, float epsilon,
                       float* inverse_deviations, cudaStream_t stream);

/// Per channel, [channels], aligned to 16 bytes.
struct ChannelScale {
  const float* means = nullptr;
  const float* inverse_deviations = nullptr;
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

/// Bytes of a mask with one bit per element, set where a ReLU passes the gradient: a byte for the
/// elements that a thread loads at a time.
std::size_t mask_bytes(const ChannelLayout& layout);

/// output = (input - mean) * inverse_deviation * gamma + beta, plus `residual` if it is not empty,
/// then max(., 0) if `relu`. If `mask` is not null, writes which elements were above 0.
void normalize(const TensorView& input, const TensorView& residual, const ChannelScale& scale,
               bool relu, const ChannelLayout& layout, const TensorView& output, std::uint8_t* mask,
               cudaStream_t stream);

/// The results of gradient_sums(), in float32.
struct GradientSums {
  float* sums = nullptr;   ///< [2 channels], aligned to 16 bytes: for beta, then for gamma
  float* beta = nullptr;   ///< [channels]: copy of the first half
  float* gamma = nullptr;  ///< [channels]: copy of the second half
};

/// sums[0 .. channels) = sum of g, sums[channels .. 2 channels) = sum of g * normalized input. g is
/// the gradient of the output where `mask` has a 1, otherwise 0; all of it if `mask` is null.
void gradient_sums(const TensorView& input, const std::uint8_t* mask,
                   const TensorView& output_gradient, const ChannelScale& scale,
                   const ChannelLayout& layout, void* partials, const GradientSums& results,
                   cudaStream_t stream);

/// input_gradient = gamma * inverse_deviation * (g - (sums[c] + normalized input * sums[channels +
/// c]) / count). `sums` and `count` (one float on the GPU) cover all samples of the statistics. If
/// `residual_gradient` is not empty, it receives g. Either output may alias the output's gradient.
void input_gradient(const TensorView& input, const std::uint8_t* mask,
                    const TensorView& output_gradient, const ChannelScale& scale, const float* sums,
                    const float* count, const ChannelLayout& layout,
                    const TensorView& input_gradient, const TensorView& residual_gradient,
                    cudaStream_t stream);

}  // namespace lockstep::inline v0::model::cuda
