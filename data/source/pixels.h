// Pixels as networks take them.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::data {

/// floats[i] = pixels[i] / 255, correctly rounded. Spans of one size.
void pixels_to_floats(std::span<const std::uint8_t> pixels, std::span<float> floats);

/// The reverse, for values in [0, 1]: the nearest of 0 .. 255.
void floats_to_pixels(std::span<const float> floats, std::span<std::uint8_t> pixels);

}  // namespace lockstep::data
