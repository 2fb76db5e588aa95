// Distribution of sums over the rows of [rows, channels] to thread blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model::cuda {

/// Threads per block and resident blocks per multiprocessor: the kernels' launch bounds, so that
/// all blocks of a one-wave grid are resident.
constexpr int kRowThreads = 256;
constexpr int kRowBlocksPerMultiprocessor = 3;

/// A block is columns x lanes: adjacent threads process adjacent packs of channels, lanes process
/// rows. The grid is column_blocks x row_blocks.
struct ChannelLayout {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  int width = 1;          ///< elements that a thread loads at a time: 16 bytes, or one element
  int columns = 1;        ///< a power of two, at most a warp
  int column_blocks = 1;  ///< blocks for all channels
  int row_blocks = 1;     ///< blocks that share the rows

  constexpr int lanes() const { return kRowThreads / columns; }
};

/// Fills `multiprocessors` with one wave of blocks, unless there are too few rows. A thread then
/// always processes the same channels.
constexpr ChannelLayout channel_layout(std::int64_t rows, std::int64_t channels,
                                       Precision precision, int multiprocessors) {
  constexpr int kMaxColumns = 32;
  constexpr std::int64_t kMinRowsPerLane = 4;  // loaded together
  ChannelLayout layout{.rows = rows, .channels = channels};
  const int pack = static_cast<int>(16 / element_bytes(precision));
  if (channels % pack == 0) layout.width = pack;
  const std::int64_t packs = channels / layout.width;
  while (layout.columns < kMaxColumns && layout.columns < packs) layout.columns *= 2;
  layout.column_blocks = static_cast<int>((packs + layout.columns - 1) / layout.columns);
  const std::int64_t rows_per_block = kMinRowsPerLane * layout.lanes();
  const std::int64_t useful_blocks = (rows + rows_per_block - 1) / rows_per_block;
  const std::int64_t resident_blocks =
      std::int64_t{multiprocessors} * kRowBlocksPerMultiprocessor / layout.column_blocks;
  layout.row_blocks = static_cast<int>(
      std::max<std::int64_t>(1, std::min<std::int64_t>(useful_blocks, resident_blocks)));
  return layout;
}

/// Bytes of scratch for the sums of all blocks.
constexpr std::size_t partial_bytes(const ChannelLayout& layout) {
  return static_cast<std::size_t>(layout.row_blocks) * static_cast<std::size_t>(layout.channels) *
         2 * sizeof(float);
}

/// The minimum number of channels for a convolution of 16-bit images on tensor cores; with fewer,
/// cuDNN pads the images in each pass. 0 for float32.
constexpr std::int64_t min_channels(Precision precision) {
  if (precision == Precision::float32) return 0;
  return precision == Precision::float16 ? 4 : 8;
}

// Statistics that a convolution passes to the following normalization.

/// Sums of each channel over all rows, [channels] each, in the GPU's memory.
struct ChannelSums {
  float* values = nullptr;
  float* squares = nullptr;
};

// Each array starts at a multiple of 16 bytes, as cuDNN requires for all outputs.
constexpr std::size_t channel_sums_stride(std::int64_t channels) {
  return (static_cast<std::size_t>(channels) + 3) / 4 * 4;
}
constexpr std::size_t channel_sums_bytes(std::int64_t channels) {
  return 2 * channel_sums_stride(channels) * sizeof(float);
}

/// The sums in `memory` of channel_sums_bytes(channels), aligned to 16 bytes.
inline ChannelSums channel_sums(std::byte* memory, std::int64_t channels) {
  auto* const values = reinterpret_cast<float*>(memory);
  return {values, values + channel_sums_stride(channels)};
}

}  // namespace lockstep::inline v0::model::cuda
