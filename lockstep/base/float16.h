// The two 16-bit floating-point types, as storage formats: arithmetic is done in float32.
#pragma once

#include <bit>
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

/// The bits of a bfloat16, in an array of BFloat16 or of the type of a library.
using BFloat16Bits [[gnu::may_alias]] = std::uint16_t;

/// to[i] = from[i], exact, as widen() of spans does: for rows so short that a call matters. The
/// arrays do not overlap. Without branches, so that the loop is vectorized.
[[gnu::always_inline]] inline void widen(const BFloat16Bits* __restrict from, std::int64_t count,
                                         float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16);
}

/// to[i] = from[i], rounded as narrow() of spans does. NaN becomes the quiet NaN with its sign;
/// denormals are kept. The arrays do not overlap.
[[gnu::always_inline]] inline void narrow(const float* __restrict from, std::int64_t count,
                                          BFloat16Bits* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const std::uint32_t nan = ((bits >> 16) & 0x8000) | 0x7fc0;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    to[i] = static_cast<std::uint16_t>(is_nan ? nan : rounded);
  }
}

}  // namespace lockstep
