// Distribution of sums over the rows of [rows, channels] to thread blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::model::cuda {

struct ChannelLayout {
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  int row_blocks = 1;
};

constexpr ChannelLayout channel_layout(std::int64_t rows, std::int64_t channels) {
  constexpr std::int64_t kRowsOfABlock =
      128;  // with fewer, the second sum would be as long as the first
  constexpr std::int64_t kMaxRowBlocks =
      1024;  // roughly the number of blocks that a large GPU runs concurrently
  const std::int64_t blocks = (rows + kRowsOfABlock - 1) / kRowsOfABlock;
  return {rows, channels,
          static_cast<int>(blocks < 1               ? 1
                           : blocks > kMaxRowBlocks ? kMaxRowBlocks
                                                    : blocks)};
}

/// Bytes of scratch for the sums of all blocks.
constexpr std::size_t partial_bytes(const ChannelLayout& layout) {
  return static_cast<std::size_t>(layout.row_blocks) * static_cast<std::size_t>(layout.channels) *
         2 * sizeof(float);
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

}  // namespace lockstep::model::cuda
