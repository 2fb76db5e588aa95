// What gradients travel as between replicas.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace lockstep::allreduce {

/// 16-bit types halve the bytes on the wire; the error that this makes is theirs.
enum class WireType { float32, bfloat16, float16 };

/// Reads "float32", "bfloat16", "float16". Throws Error (input) that lists them.
WireType parse_wire_type(std::string_view name);
std::string to_string(WireType type);  ///< the name that parse_wire_type() knows

/// float16 has 5 bits of exponent: what all members multiply by before they round to it. A power of two that makes the
/// sum of `members` values of magnitude `largest`, the largest of all members, as large as fits; 1 where `largest` is 0
/// or not finite. So nothing overflows, little vanishes, and no state is carried from step to step. nvcc compiles the
/// same function for GPUs.
constexpr float wire_scale(float largest, int members) {
  constexpr float kLargest = 32768;
  constexpr int kExponents = 100;  // beyond it the scale itself would leave float32
  constexpr int kBias = 127;
  if (!(largest > 0) || largest > std::numeric_limits<float>::max()) return 1;
  const float room = kLargest / (static_cast<float>(members) * largest);
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(room) >> 23) - kBias;
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::clamp(exponent, -kExponents, kExponents) + kBias) << 23);
}

/// The bits of a value's magnitude, which are ordered as magnitudes are; infinity for what is not finite.
constexpr std::uint32_t magnitude_bits(float value) {
  constexpr std::uint32_t kInfinity = 0x7f800000;
  return std::min(std::bit_cast<std::uint32_t>(value) & 0x7fffffffU, kInfinity);
}

}  // namespace lockstep::allreduce
