// Reduction of single elements. All functions are constexpr, so that nvcc compiles them for GPUs
// too.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/float16.h"

namespace lockstep::allreduce {

struct Sum {
  template <typename T>
  static constexpr T apply(T a, T b) {
    if constexpr (std::integral<T>) {
      // Integers wrap around, as they do in MPI; signed overflow would be undefined.
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

// A NaN on any member must propagate: the result is `b` unless `a` is NaN or compares better, and
// no `a` compares better than a NaN `b`.
template <typename T>
constexpr bool is_nan(T value) {
  // Only NaN differs from itself; std::isnan is not constexpr.
  // NOLINTNEXTLINE(misc-redundant-expression)
  return value != value;
}

struct Max {
  template <typename T>
  static constexpr T apply(T a, T b) {
    return a > b || is_nan(a) ? a : b;
  }
};

struct Min {
  template <typename T>
  static constexpr T apply(T a, T b) {
    return a < b || is_nan(a) ? a : b;
  }
};

/// Conversion between the stored type and the type of sums: the same type, except that 16-bit
/// floats are widened to float32. Bitwise equal to device::widen and device::narrow.
template <typename T>
struct Element {
  using Total = T;
  static constexpr T load(T value) { return value; }
  static constexpr T store(T total) { return total; }
};

template <>
struct Element<BFloat16> {
  using Total = float;

  static constexpr float load(BFloat16 value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
  }

  static constexpr BFloat16 store(float total) {
    const auto bits = std::bit_cast<std::uint32_t>(total);
    if (is_nan(total)) return {static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | 0x7fc0U)};
    // Rounds to nearest even: adds half of the last kept bit, slightly less if that bit is even.
    return {static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
  }
};

template <>
struct Element<Float16> {
  using Total = float;

  static constexpr float load(Float16 value) {
    const std::uint32_t sign = (value.bits & 0x8000U) << 16;
    const std::uint32_t magnitude = (value.bits & 0x7fffU) << 13;
    // Read as a float32, the value is too small by 2^112, the difference of the exponent biases.
    // The product is exact.
    auto bits = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
    if (magnitude >= kInfinity << 13) bits = magnitude | 0x7f800000U;
    if (magnitude > kInfinity << 13) bits |= 0x00400000U;
    return std::bit_cast<float>(bits | sign);
  }

  static constexpr Float16 store(float total) {
    const auto bits = std::bit_cast<std::uint32_t>(total);
    return {
        static_cast<std::uint16_t>((bits >> 16 & 0x8000U) | store_magnitude(bits & 0x7fffffffU))};
  }

 private:
  static constexpr std::uint32_t kInfinity = 0x7c00;

  static constexpr std::uint32_t store_magnitude(std::uint32_t bits) {
    if (bits > 0x7f800000U) return kInfinity | 0x200U | (bits >> 13 & 0x3ffU);
    if (bits >= 0x477ff000U) return kInfinity;  // 65520 and more
    // Below 2^-14 the last bit is 2^-24, as it is in a float32 from 0.5 to 1: the addition rounds
    // there.
    if (bits < 0x38800000U)
      return std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5F) -
             std::bit_cast<std::uint32_t>(0.5F);
    return (bits + 0xfffU + (bits >> 13 & 1U) - (112U << 23)) >> 13;
  }
};

/// Applies Op to value_of(0) .. value_of(members - 1), in this order. 16-bit floats are rounded
/// once.
template <typename Op, typename T, typename ValueOf>
constexpr T reduce_element(int members, ValueOf value_of) {
  typename Element<T>::Total total = Element<T>::load(value_of(0));
  for (int member = 1; member < members; ++member)
    total = Op::apply(total, Element<T>::load(value_of(member)));
  return Element<T>::store(total);
}

}  // namespace lockstep::allreduce
