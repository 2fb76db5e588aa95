// Counter-based random numbers: a pure function of (key, counter), identical on every rank, thread
// and world size.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::inline v0 {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), from
/// Random123. A value type; block() may be called from any thread in any order.
class Philox {
 public:
  explicit Philox(std::uint64_t key) : key_(key) {}  ///< the generator of stream `key`

  /// Four independent 32-bit words for a 128-bit counter (high, low).
  std::array<std::uint32_t, 4> block(std::uint64_t high, std::uint64_t low) const;

 private:
  std::uint64_t key_;
};

/// Derives a key from a seed and a purpose, such as ("dropout_1", step). Distinct purposes give
/// independent streams.
std::uint64_t random_key(std::uint64_t seed, std::string_view purpose, std::uint64_t index = 0);

/// Converts the upper 24 bits of a word to a float in [0, 1).
inline float to_unit_float(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1.0p-24f;
}

}  // namespace lockstep::inline v0
