// Passes of batch normalization over images on a CPU: arrays [rows, channels] of float32 or
// bfloat16, computed in float32. The threads of the replica share the work; the order of summation
// depends only on the shape, so results do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cpu {

/// Groups the rows of an array into wide rows, so that registers are full and each place of a wide
/// row always has the same channel. Places are summed over blocks of wide rows, blocks over parts
/// of the array: rounding errors grow with the number of blocks, not of rows.
struct ChannelRows {
  ChannelRows(std::int64_t rows, std::int64_t channels);

  std::int64_t channels;
  std::int64_t width;      ///< elements of a wide row: channels, or a multiple
  std::int64_t wide_rows;  ///< number of whole wide rows
  std::int64_t rest;       ///< elements past the last wide row, fewer than `width`
  std::int64_t block;      ///< wide rows per block; the last may have fewer
  std::int64_t parts;      ///< number of parts, each of consecutive blocks

  /// Bytes of workspace that the passes need, aligned to 64 bytes.
  std::size_t scratch_bytes() const;
  /// Bytes of a mask with one bit per element, set where a ReLU passes the gradient.
  std::size_t mask_bytes() const;
};

/// Per channel, [channels].
struct ChannelScale {
  const float* means = nullptr;
  const float* inverse_deviations = nullptr;
  const float* gamma = nullptr;
  const float* beta = nullptr;
};

/// The arrays of backward. `mask` is that of normalize(), or null.
struct GradientArrays {
  TensorView input;
  TensorView output_gradient;
  const std::uint16_t* mask = nullptr;
};

/// Writes to means [channels] the mean of each channel, to `squares` [channels] its sum of squared
/// deviations from the mean.
void channel_moments(const TensorView& input, const ChannelRows& rows, std::span<std::byte> scratch,
                     float* means, float* squares);

/// output = (input - mean) * inverse_deviation * gamma + beta, plus `added` if it is not empty,
/// then max(., 0) if `relu`. If `mask` is not null, writes which elements were above 0:
/// mask_bytes().
void normalize(const TensorView& input, const TensorView& added, const ChannelScale& scale,
               bool relu, const ChannelRows& rows, std::span<std::byte> scratch,
               const TensorView& output, std::uint16_t* mask);

/// sums[0 .. channels) = sum of g, sums[channels .. 2 channels) = sum of g * normalized input. g is
/// the gradient of the output where `mask` has a 1, otherwise 0; all of it if `mask` is null.
void gradient_sums(const GradientArrays& arrays, const ChannelScale& scale, const ChannelRows& rows,
                   std::span<std::byte> scratch, float* sums);

/// input_gradient = gamma * inverse_deviation * (g - (sums[c] + normalized input * sums[channels +
/// c]) / count). `sums` and `count` cover all samples of the statistics. If `added_gradient` is not
/// empty, it receives g; `input_gradient` may be empty. Either may be the output's gradient.
void input_gradient(const GradientArrays& arrays, const ChannelScale& scale, const float* sums,
                    float count, const ChannelRows& rows, std::span<std::byte> scratch,
                    const TensorView& input_gradient, const TensorView& added_gradient);

}  // namespace lockstep::inline v0::model::cpu
