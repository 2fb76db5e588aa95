// The two 16-bit floating-point types, as storage formats: arithmetic is done in float32.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace lockstep::inline v0 {

/// IEEE 754 binary16: 5 bits of exponent, 11 of precision.
struct Float16 {
  std::uint16_t bits = 0;  ///< sign, 5 bits of exponent, 10 of fraction
};

/// The upper half of a float32: 8 bits of exponent, 8 of precision.
struct BFloat16 {
  std::uint16_t bits = 0;  ///< sign, 8 bits of exponent, 7 of fraction
};

// Conversions of one value. They are constexpr, so that nvcc compiles them for GPUs too, and have
// no branches, so that loops of them are vectorized.

/// The value, exact; NaN becomes quiet.
constexpr float to_float(Float16 value) {
  constexpr std::uint32_t kInfinity = 0x7c00U << 13;
  const std::uint32_t magnitude = (value.bits & 0x7fffU) << 13;
  // Read as a float32, the value is too small by 2^112, the difference of the exponent biases. The
  // product is exact.
  auto bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  bits = magnitude >= kInfinity ? magnitude | 0x7f800000U : bits;
  bits |= magnitude > kInfinity ? 0x00400000U : 0U;
  return std::bit_cast<float>(bits | (value.bits & 0x8000U) << 16);
}

/// The value, exact.
constexpr float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// The value, rounded to nearest, ties to even. What is too large becomes infinite; NaN becomes
/// quiet, with its sign.
constexpr Float16 to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = (magnitude + 0xfffU + (magnitude >> 13 & 1U) - (112U << 23)) >> 13;
  // Below 2^-14 the last bit is 2^-24, as it is in a float32 from 0.5 to 1: the addition rounds
  // there.
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
      std::bit_cast<std::uint32_t>(0.5F);
  half = magnitude < 0x38800000U ? denormal : half;
  half = magnitude >= 0x477ff000U ? 0x7c00U : half;  // 65520 and more
  half = magnitude > 0x7f800000U ? 0x7e00U | (magnitude >> 13 & 0x3ffU) : half;
  return {static_cast<std::uint16_t>(half | (bits >> 16 & 0x8000U))};
}

/// As to_float16().
constexpr BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Adds half of the last bit that is kept, slightly less if that bit is even.
  const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  const std::uint32_t nan = (bits >> 16 & 0x8000U) | 0x7fc0U;
  return {static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded)};
}

/// to[i] = from[i], exact. The spans have the same size and do not overlap.
void widen(std::span<const Float16> from, std::span<float> to);
void widen(std::span<const BFloat16> from, std::span<float> to);  ///< same, from bfloat16

/// to[i] = from[i], rounded as by to_float16(). The spans have the same size and do not overlap.
void narrow(std::span<const float> from, std::span<Float16> to);
void narrow(std::span<const float> from, std::span<BFloat16> to);  ///< same, to bfloat16

/// The bits of a bfloat16, in an array of BFloat16 or of the type of a library.
using BFloat16Bits [[gnu::may_alias]] = std::uint16_t;

/// to[i] = from[i], exact, as widen() of spans does: for rows so short that a call matters. The
/// arrays do not overlap.
[[gnu::always_inline]] inline void widen(const BFloat16Bits* __restrict from, std::int64_t count,
                                         float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(BFloat16{from[i]});
}

/// to[i] = from[i], rounded as narrow() of spans does. The arrays do not overlap.
[[gnu::always_inline]] inline void narrow(const float* __restrict from, std::int64_t count,
                                          BFloat16Bits* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_bfloat16(from[i]).bits;
}

}  // namespace lockstep::inline v0
