// Pixels of 8 bits as networks take them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace lockstep {

/// What gives the features of images about one scale: (x - mean) / deviation of their channel, the last extent of the
/// shape. In floats, in this order, on every device.
struct ChannelNormalization {
  static constexpr int kMostChannels = 4;  ///< values of a pixel, at most

  int channels = 0;                                           ///< 0: features stay as they are
  std::array<float, kMostChannels> mean = {};                 ///< subtracted from each value of a channel
  std::array<float, kMostChannels> deviation = {1, 1, 1, 1};  ///< divides what is left

  bool operator==(const ChannelNormalization&) const = default;
};

/// One feature as a network sees it.
constexpr float normalized(float feature, float mean, float deviation) { return (feature - mean) / deviation; }

/// features[i] = pixels[i] / 255, correctly rounded, and then normalized. Spans of one size, of whole pixels.
void pixels_to_features(std::span<const std::uint8_t> pixels, const ChannelNormalization& normalization,
                        std::span<float> features);

/// In place; of whole pixels.
void normalize(const ChannelNormalization& normalization, std::span<float> features);

/// What pixels were, for features in [0, 1]: the nearest of 0 .. 255.
void features_to_pixels(std::span<const float> features, std::span<std::uint8_t> pixels);

}  // namespace lockstep
