#include "lockstep/base/float16.h"

#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The loops have no branches, so that the compiler vectorizes them.

/// to[i] = from[i]. Multiplying by 2^112 moves the exponent from the bias of binary16 to that of
/// binary32, and normalizes denormals.
void widen(const Float16* __restrict from, std::int64_t count, float* __restrict to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t half = from[i].bits;
    const float magnitude = std::bit_cast<float>((half & 0x7fff) << 13) * 0x1p112f;
    const std::uint32_t infinite_or_nan = (half & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
    to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | infinite_or_nan |
                                 (half & 0x8000) << 16);
  }
}

/// to[i] = from[i], rounded to nearest, ties to even; NaN becomes quiet.
void narrow(const float* __restrict from, std::int64_t count, Float16* __restrict to) {
  constexpr std::uint32_t kSmallestNormal = 113U << 23;  // 2^-14
  constexpr std::uint32_t kTooLarge = 0x477ff000;        // 65520, which rounds to infinity
  constexpr std::uint32_t kInfinity = 0x7f800000;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    const std::uint32_t normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // The sum with 0.5 has the fraction of a denormal in its last 10 bits, rounded by the
    // processor.
    const std::uint32_t denormal =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
        std::bit_cast<std::uint32_t>(0.5f);
    const std::uint32_t nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    std::uint32_t half = magnitude < kSmallestNormal ? denormal : normal;
    half = magnitude >= kTooLarge ? 0x7c00 : half;
    half = magnitude > kInfinity ? nan : half;
    to[i] = {static_cast<std::uint16_t>(half | ((bits >> 16) & 0x8000))};
  }
}

}  // namespace

void widen(std::span<const Float16> from, std::span<float> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  widen(from.data(), std::ssize(from), to.data());
}
void widen(std::span<const BFloat16> from, std::span<float> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  widen(reinterpret_cast<const BFloat16Bits*>(from.data()), std::ssize(from), to.data());
}
void narrow(std::span<const float> from, std::span<Float16> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  narrow(from.data(), std::ssize(from), to.data());
}
void narrow(std::span<const float> from, std::span<BFloat16> to) {
  LOCKSTEP_CHECK_OP(from.size(), ==, to.size());
  narrow(from.data(), std::ssize(from), reinterpret_cast<BFloat16Bits*>(to.data()));
}

}  // namespace lockstep
