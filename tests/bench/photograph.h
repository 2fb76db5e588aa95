// Generated images with the decoding cost of photographs.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::inline v0::bench {

/// Returns gradients with some noise as JPEG of quality 90 with chroma at half the size.
std::vector<std::uint8_t> photograph(int height, int width, std::uint64_t seed = 1);

}  // namespace lockstep::inline v0::bench
