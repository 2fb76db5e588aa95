// The two 16-bit floating-point types, as bits in memory: arithmetic happens in float32.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// IEEE 754 binary16: 5 bits of exponent, 11 of precision.
struct Float16 {
  std::uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of fraction: the upper half of a float
};

/// The upper half of a float32: its 8 bits of exponent, 8 of precision.
struct BFloat16 {
  std::uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of fraction: IEEE 754 binary16
};

/// to[i] = from[i], exactly. The spans have the same size and do not overlap.
void widen(std::span<const Float16> from, std::span<float> to);
void widen(std::span<const BFloat16> from, std::span<float> to);  ///< the same of bfloat16

/// to[i] = from[i], rounded to the nearest, ties to even; what is too large becomes infinite, NaN stays NaN. The spans
/// have the same size and do not overlap.
void narrow(std::span<const float> from, std::span<Float16> to);
void narrow(std::span<const float> from, std::span<BFloat16> to);  ///< the same to bfloat16

}  // namespace lockstep
