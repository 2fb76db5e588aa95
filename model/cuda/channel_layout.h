// How sums over the rows of [rows, channels] are shared out to blocks of threads.
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
  constexpr std::int64_t kRowsOfABlock = 128;    // with fewer the second sum would be as long as the first
  constexpr std::int64_t kMostRowBlocks = 1024;  // about what a large GPU runs at once
  const std::int64_t blocks = (rows + kRowsOfABlock - 1) / kRowsOfABlock;
  return {rows, channels, static_cast<int>(blocks < 1 ? 1 : blocks > kMostRowBlocks ? kMostRowBlocks : blocks)};
}

/// Bytes of scratch for the sums of all blocks.
constexpr std::size_t partial_bytes(const ChannelLayout& layout) {
  return static_cast<std::size_t>(layout.row_blocks) * static_cast<std::size_t>(layout.channels) * 2 * sizeof(float);
}

}  // namespace lockstep::model::cuda
