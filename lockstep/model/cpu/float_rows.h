// Rows and blocks of elements as float32, for layers that a CPU computes in float32 or bfloat16:
// elements are widened when they are read, and rounded once when they are written. Whole rows are
// converted by vector instructions; Eigen does not vectorize bfloat16 expressions.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "lockstep/base/float16.h"
#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu {

/// Elements of a block: few enough for the L1 cache, many enough to amortize a loop.
constexpr std::int64_t kBlockElements = 512;
using FloatBlock = std::array<float, kBlockElements>;  ///< memory for one block

using FloatArray = Eigen::Map<Eigen::ArrayXf>;             ///< elements in memory
using ConstFloatArray = Eigen::Map<const Eigen::ArrayXf>;  ///< read-only elements

/// Calls each(first, count) for the blocks of `elements` elements, from the first on.
template <typename Each>
void for_blocks(std::int64_t elements, const Each& each) {
  for (std::int64_t first = 0; first < elements; first += kBlockElements)
    each(first, std::min(kBlockElements, elements - first));
}

/// to[i] = from[i]. The arrays do not overlap.
inline void widen(const float* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[i];
}
inline void widen(const Eigen::bfloat16* from, std::int64_t count, float* to) {
  lockstep::widen(reinterpret_cast<const BFloat16Bits*>(from), count, to);
}

/// to[i] = from[i], rounded to nearest, ties to even. The arrays do not overlap.
inline void narrow(const float* from, std::int64_t count, float* to) { widen(from, count, to); }
inline void narrow(const float* from, std::int64_t count, Eigen::bfloat16* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store_lanes(load_lanes(from + i), to + i);
  lockstep::narrow(from + i, count - i, reinterpret_cast<BFloat16Bits*>(to + i));
}

/// `count` elements as float32: those at `from`, or copies of them in `scratch`.
inline ConstFloatArray widened(const float* from, std::int64_t count, float* /*scratch*/) {
  return {from, count};
}
inline ConstFloatArray widened(const Eigen::bfloat16* from, std::int64_t count, float* scratch) {
  widen(from, count, scratch);
  return {scratch, count};
}

/// to = values, an expression of `count` elements, which is computed in `scratch` and then rounded.
/// It may read `scratch` and, element by element, `to`.
template <typename Expression>
void assign(const Expression& values, float* to, std::int64_t count, float* /*scratch*/) {
  FloatArray(to, count) = values;
}
template <typename Expression>
void assign(const Expression& values, Eigen::bfloat16* to, std::int64_t count, float* scratch) {
  FloatArray(scratch, count) = values;
  narrow(scratch, count, to);
}

/// sums[i] += from[i]. The arrays do not overlap.
inline void add_to(float* sums, const float* from, std::int64_t count) {
  FloatArray(sums, count) += ConstFloatArray(from, count);
}
inline void add_to(float* __restrict sums, const Eigen::bfloat16* from, std::int64_t count) {
  const auto* const bits = reinterpret_cast<const BFloat16Bits*>(from);
  for (std::int64_t i = 0; i < count; ++i)
    sums[i] += std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16);
}

/// sum[i] = a[i] + b[i], rounded. `sum` may be `a` or `b`.
template <typename T>
void add(const T* a, const T* b, std::int64_t count, T* sum) {
  FloatBlock wide_a;
  FloatBlock wide_b;
  for_blocks(count, [&](std::int64_t first, std::int64_t elements) {
    const auto left = widened(a + first, elements, wide_a.data());
    const auto right = widened(b + first, elements, wide_b.data());
    assign(left + right, sum + first, elements, wide_a.data());
  });
}

}  // namespace lockstep::inline v0::model::cpu
