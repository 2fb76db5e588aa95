// Images to measure with, as photographs are to a decoder.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::bench {

/// Slopes with some noise on them, as a photograph has, in JPEG of quality 90 with chroma at half
/// the size.
std::vector<std::uint8_t> photograph(int height, int width, std::uint64_t seed = 1);

}  // namespace lockstep::bench
