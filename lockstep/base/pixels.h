// Conversion between 8-bit pixels and the float features of networks.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lockstep::inline v0 {

/// Per-channel normalization of image features: (x - mean) / deviation. The channel is the last
/// extent of the shape. Computed in float32 in this order on every device.
struct ChannelNormalization {
  static constexpr int kMaxChannels = 4;  ///< maximum number of values per pixel

  int channels = 0;                                          ///< 0: no normalization
  std::array<float, kMaxChannels> mean = {};                 ///< per channel
  std::array<float, kMaxChannels> deviation = {1, 1, 1, 1};  ///< per channel

  bool operator==(const ChannelNormalization&) const = default;
};

/// Normalizes one feature.
constexpr float normalized(float feature, float mean, float deviation) {
  return (feature - mean) / deviation;
}

/// features[i] = pixels[i] / 255, correctly rounded, then normalized. The spans have the same size,
/// in whole pixels.
void pixels_to_features(std::span<const std::uint8_t> pixels,
                        const ChannelNormalization& normalization, std::span<float> features);

/// Normalizes in place; `features` contains whole pixels.
void normalize(const ChannelNormalization& normalization, std::span<float> features);

/// Converts features in [0, 1] without normalization back: the nearest integer in 0 .. 255.
void features_to_pixels(std::span<const float> features, std::span<std::uint8_t> pixels);

}  // namespace lockstep::inline v0
