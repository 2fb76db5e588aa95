// Vectors of float32 as wide as the target's registers: conversions, the exponential,
// transposition. The result for an element depends neither on its position nor on its neighbors.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

namespace lockstep::inline v0::model::cpu {

/// The target's widest vector register.
using Lanes [[gnu::vector_size(EIGEN_MAX_ALIGN_BYTES), gnu::may_alias]] = float;
constexpr std::int64_t kLanes = EIGEN_MAX_ALIGN_BYTES / sizeof(float);

/// Integer vectors of the same width: the bits of Lanes, or the result of a comparison.
using IntLanes [[gnu::vector_size(EIGEN_MAX_ALIGN_BYTES)]] = std::int32_t;
using BitLanes [[gnu::vector_size(EIGEN_MAX_ALIGN_BYTES)]] = std::uint32_t;
/// kLanes elements of 16 bits; and the halves of all lanes, the lower half first.
using HalfLanes [[gnu::vector_size(EIGEN_MAX_ALIGN_BYTES / 2)]] = std::uint16_t;
using BothHalves [[gnu::vector_size(EIGEN_MAX_ALIGN_BYTES)]] = std::uint16_t;

// One shuffle, which compilers do not generate for a vector conversion.
template <std::size_t... kIndex>
Lanes with_upper_halves(const HalfLanes& halves, std::index_sequence<kIndex...> /*halves*/) {
  const BothHalves both =
      __builtin_shufflevector(HalfLanes{}, halves, (kIndex % 2 * kLanes + kIndex / 2)...);
  return reinterpret_cast<Lanes>(both);
}
template <std::size_t... kIndex>
HalfLanes upper_halves_of(const BitLanes& lanes, std::index_sequence<kIndex...> /*lanes*/) {
  const auto both = reinterpret_cast<BothHalves>(lanes);
  return __builtin_shufflevector(both, both, (2 * kIndex + 1)...);
}

/// kLanes elements, at any address.
inline Lanes load_lanes(const float* from) {
  Lanes result;
  std::memcpy(&result, from, sizeof result);
  return result;
}
inline Lanes load_lanes(const Eigen::bfloat16* from) {
  HalfLanes halves;
  std::memcpy(&halves, from, sizeof halves);
  return with_upper_halves(halves, std::make_index_sequence<2 * kLanes>());
}

/// Writes kLanes elements, to any address; to bfloat16 rounded as narrow() of base/float16.h does.
inline void store_lanes(const Lanes& values, float* to) { std::memcpy(to, &values, sizeof values); }
inline void store_lanes(const Lanes& values, Eigen::bfloat16* to) {
  const auto bits = reinterpret_cast<BitLanes>(values);
  const BitLanes rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const BitLanes nan = (bits & 0x80000000) | 0x7fc00000;
  const auto is_nan = values != values;  // NOLINT(misc-redundant-expression): true of NaN
  const HalfLanes halves =
      upper_halves_of(is_nan ? nan : rounded, std::make_index_sequence<kLanes>());
  std::memcpy(static_cast<void*>(to), &halves, sizeof halves);
}

/// The first `count` lanes, up to kLanes; the others are 0.
template <typename T>
[[gnu::always_inline]] inline Lanes load_partial(const T* from, std::int64_t count) {
  if (count == kLanes) return load_lanes(from);
  T lanes[kLanes] = {};
  std::copy_n(from, count, lanes);
  return load_lanes(lanes);
}
/// Writes the first `count` lanes, up to kLanes.
template <typename T>
[[gnu::always_inline]] inline void store_partial(const Lanes& values, T* to, std::int64_t count) {
  if (count == kLanes) return store_lanes(values, to);
  T lanes[kLanes];
  store_lanes(values, lanes);
  std::copy_n(lanes, count, to);
}

/// `value` in all lanes.
inline Lanes lanes_of(float value) { return value - Lanes{}; }

/// 0, 1, 2, ...
template <std::size_t... kIndex>
constexpr IntLanes lane_numbers(std::index_sequence<kIndex...> /*lanes*/) {
  return IntLanes{static_cast<std::int32_t>(kIndex)...};
}
constexpr IntLanes lane_numbers() {
  return lane_numbers(std::make_index_sequence<static_cast<std::size_t>(kLanes)>());
}

inline Lanes larger(const Lanes& a, const Lanes& b) { return a > b ? a : b; }

/// Bit i: whether lane i of a comparison's result is true.
inline std::uint16_t lane_bits(const IntLanes& truth) {
  using ByteLanes [[gnu::vector_size(kLanes)]] = std::int8_t;
  const ByteLanes bytes = __builtin_convertvector(truth, ByteLanes);
  constexpr std::size_t kWords = (kLanes + 7) / 8;
  std::uint64_t words[kWords] = {};
  std::memcpy(words, &bytes, sizeof bytes);
  std::uint64_t bits = 0;
  // The product has the lowest bit of byte i at bit 56 + i.
  for (std::size_t i = 0; i < kWords; ++i)
    bits |= (words[i] & 0x0101010101010101) * 0x0102040810204080 >> 56 << (8 * i);
  return static_cast<std::uint16_t>(bits);
}
/// Lane i where bit i is set, 0 elsewhere.
inline Lanes lanes_where(std::uint16_t bits, const Lanes& lanes) {
  const IntLanes bit = (IntLanes{} + 1) << lane_numbers();
  const IntLanes chosen = ((IntLanes{} + bits) & bit) == bit;  // all ones or 0
  return reinterpret_cast<Lanes>(reinterpret_cast<IntLanes>(lanes) & chosen);
}

/// e^x, with an error of at most about 1 ulp; 0 where the result is subnormal, infinity on
/// overflow, NaN for NaN. e^x = 2^n e^r with n = x / ln 2, rounded; e^r is the minimax polynomial
/// (relative error 3e-9) for |r| <= ln 2 / 2.
inline Lanes exp_of(const Lanes& x) {
  constexpr float kSmallestArgument = -87.33654f;
  constexpr float kLargestArgument = 88.72283f;
  constexpr float kRounds = 12582912;  // 1.5 * 2^23: a sum with it has no fraction
  const Lanes sum = x * 1.44269504f + kRounds;
  const Lanes n = sum - kRounds;
  const Lanes r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  Lanes p = r * 1.3813734e-3f + 8.3688495e-3f;
  p = p * r + 4.1668400e-2f;
  p = p * r + 1.6666520e-1f;
  p = p * r + 4.9999994e-1f;
  const Lanes power = (p * (r * r) + r) + 1.0f;
  // The lowest bits of `sum` are n, which is added to the exponent.
  const auto scaled = reinterpret_cast<Lanes>(reinterpret_cast<BitLanes>(power) +
                                              (reinterpret_cast<BitLanes>(sum) << 23));
  const Lanes bounded =
      x > kLargestArgument ? lanes_of(std::numeric_limits<float>::infinity()) : scaled;
  return x < kSmallestArgument ? Lanes{} : bounded;
}

// The first or second half of a0 b0 a1 b1 ...
template <std::size_t kFirst, std::size_t... kIndex>
Lanes interleaved(const Lanes& a, const Lanes& b, std::index_sequence<kIndex...> /*lanes*/) {
  return __builtin_shufflevector(a, b, (kFirst + kIndex / 2 + kIndex % 2 * kLanes)...);
}

/// Transposes kLanes x kLanes elements. Each step interleaves the rows of the first half with those
/// of the second, which moves one bit of the row's number to the column's.
inline void transpose_lanes(Lanes (&rows)[kLanes]) {
  constexpr auto kIndices = std::make_index_sequence<static_cast<std::size_t>(kLanes)>();
  constexpr std::size_t kHalf = kLanes / 2;
#pragma GCC unroll 8
  for (std::size_t step = kLanes; step > 1; step /= 2) {
    Lanes next[kLanes];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kHalf; ++i) {
      next[2 * i] = interleaved<0>(rows[i], rows[i + kHalf], kIndices);
      next[2 * i + 1] = interleaved<kHalf>(rows[i], rows[i + kHalf], kIndices);
    }
#pragma GCC unroll 16
    for (std::size_t i = 0; i < kLanes; ++i) rows[i] = next[i];
  }
}

// With groups of kGroup lanes: the first or second halves of the groups of a, then of those of b.
template <std::size_t kGroup, std::size_t kFirst, std::size_t... kIndex>
Lanes halves_of(const Lanes& a, const Lanes& b, std::index_sequence<kIndex...> /*lanes*/) {
  constexpr std::size_t kHalf = kLanes / 2;
  return __builtin_shufflevector(a, b,
                                 (kIndex / kHalf * kLanes + kIndex % kHalf / (kGroup / 2) * kGroup +
                                  kIndex % (kGroup / 2) + kFirst)...);
}

/// to[i] = the lanes of rows[i], combined by `combine`, in the same order for any number of rows up
/// to kLanes, a power of 2. Overwrites the rows.
template <std::size_t kGroup = kLanes, std::size_t kRows, typename Combine>
[[gnu::always_inline]] inline void combine_lanes(Lanes (&rows)[kRows], const Combine& combine,
                                                 float* to, std::size_t count = kRows) {
  if constexpr (kGroup == 1) {
    std::memcpy(to, &rows[0], kRows * sizeof(float));
  } else {
    constexpr auto kIndices = std::make_index_sequence<static_cast<std::size_t>(kLanes)>();
    const std::size_t last = count - 1;
    for (std::size_t i = 0; i < count; i += 2) {
      const Lanes a = rows[i];
      const Lanes b = rows[i < last ? i + 1 : last];
      rows[i / 2] = combine(halves_of<kGroup, 0>(a, b, kIndices),
                            halves_of<kGroup, kGroup / 2>(a, b, kIndices));
    }
    combine_lanes<kGroup / 2>(rows, combine, to, (count + 1) / 2);
  }
}

/// to[i] = the largest lane of rows[i]; see combine_lanes().
template <std::size_t kRows>
[[gnu::always_inline]] inline void largest_lanes(Lanes (&rows)[kRows], float* to) {
  combine_lanes(
      rows, [](const Lanes& a, const Lanes& b) { return larger(a, b); }, to);
}
/// to[i] = the sum of the lanes of rows[i]; see combine_lanes().
template <std::size_t kRows>
[[gnu::always_inline]] inline void sum_lanes(Lanes (&rows)[kRows], float* to) {
  combine_lanes(
      rows, [](const Lanes& a, const Lanes& b) { return a + b; }, to);
}

}  // namespace lockstep::inline v0::model::cpu
