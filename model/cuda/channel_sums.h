// What a convolution that finds statistics hands to the normalization behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::model::cuda {

/// Sums of each channel over all rows, [channels] each, in the GPU's memory.
struct ChannelSums {
  float* values = nullptr;
  float* squares = nullptr;
};

// Each array begins at a multiple of 16 bytes, which cuDNN asks of all it writes.
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
