#include "data/source/pixels.h"

#include <algorithm>
#include <cmath>

#include "device/error.h"

namespace lockstep::data {

void pixels_to_floats(std::span<const std::uint8_t> pixels, std::span<float> floats) {
  LOCKSTEP_CHECK_OP(pixels.size(), ==, floats.size());
  // In binary 1/255 is 2^-8 x 1.00000001 00000001 ..., cut here into two factors. The first product is exact, so the
  // sum is the quotient rounded once, as a division would give it, at the price of two multiplications.
  constexpr float kHigh = 0x1.01p-8f;
  constexpr float kLow = 0x1.010102p-24f;
  const std::size_t count = floats.size();
  const std::uint8_t* from = pixels.data();
  float* to = floats.data();
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(from[i]);
    to[i] = value * kHigh + value * kLow;
  }
}

void floats_to_pixels(std::span<const float> floats, std::span<std::uint8_t> pixels) {
  LOCKSTEP_CHECK_OP(pixels.size(), ==, floats.size());
  for (std::size_t i = 0; i < floats.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(std::lround(std::clamp(floats[i], 0.0f, 1.0f) * 255.0f));
  }
}

}  // namespace lockstep::data
