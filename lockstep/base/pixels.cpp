#include "lockstep/base/pixels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::inline v0 {

void pixels_to_features(std::span<const std::uint8_t> pixels,
                        const ChannelNormalization& normalization, std::span<float> features) {
  LOCKSTEP_CHECK_OP(pixels.size(), ==, features.size());
  // In binary, 1/255 is 2^-8 x 1.00000001 00000001 ..., split here into two terms. The first
  // product is exact, so the sum equals the correctly rounded quotient at the cost of two
  // multiplications instead of a division.
  constexpr float kHigh = 0x1.01p-8f;
  constexpr float kLow = 0x1.010102p-24f;
  const std::size_t count = features.size();
  const std::uint8_t* from = pixels.data();
  float* to = features.data();
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(from[i]);
    to[i] = value * kHigh + value * kLow;
  }
  normalize(normalization, features);
}

void normalize(const ChannelNormalization& normalization, std::span<float> features) {
  if (normalization.channels == 0) return;
  const auto channels = static_cast<std::size_t>(normalization.channels);
  LOCKSTEP_CHECK_OP(features.size() % channels, ==, 0u);
  for (std::size_t pixel = 0; pixel < features.size(); pixel += channels)
    for (std::size_t channel = 0; channel < channels; ++channel)
      features[pixel + channel] = normalized(features[pixel + channel], normalization.mean[channel],
                                             normalization.deviation[channel]);
}

void features_to_pixels(std::span<const float> features, std::span<std::uint8_t> pixels) {
  LOCKSTEP_CHECK_OP(pixels.size(), ==, features.size());
  for (std::size_t i = 0; i < features.size(); ++i)
    pixels[i] =
        static_cast<std::uint8_t>(std::lround(std::clamp(features[i], 0.0f, 1.0f) * 255.0f));
}

}  // namespace lockstep::inline v0
