// The two 16-bit floating-point types, as storage formats: arithmetic is done in float32.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

/// IEEE 754 binary16: 5 bits of exponent, 11 of precision.
struct Float16 {
  std::uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of fraction
};

/// The upper half of a float32: 8 bits of exponent, 8 of precision.
struct BFloat16 {
  std::uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of fraction
};

/// to[i] = from[i], exact. The spans have the same size and do not overlap.
void widen(std::span<const Float16> from, std::span<float> to);
void widen(std::span<const BFloat16> from, std::span<float> to);  ///< same, from bfloat16

/// to[i] = from[i], rounded to nearest, ties to even. Values that are too large become infinite;
/// NaN stays NaN. The spans have the same size and do not overlap.
void narrow(std::span<const float> from, std::span<Float16> to);
void narrow(std::span<const float> from, std::span<BFloat16> to);  ///< same, to bfloat16

}  // namespace lockstep
