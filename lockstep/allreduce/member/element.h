// Reduction of single elements. All functions are constexpr, so that nvcc compiles them for GPUs
// too.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/float16.h"

namespace lockstep::inline v0::allreduce {

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

struct Product {
  template <typename T>
  static constexpr T apply(T a, T b) {
    if constexpr (std::integral<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    } else {
      return a * b;
    }
  }
};

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
/// floats are widened to float32.
template <typename T>
struct Element {
  using Total = T;
  static constexpr T load(T value) { return value; }
  static constexpr T store(T total) { return total; }
};

template <>
struct Element<BFloat16> {
  using Total = float;
  static constexpr float load(BFloat16 value) { return to_float(value); }
  static constexpr BFloat16 store(float total) { return to_bfloat16(total); }
};

template <>
struct Element<Float16> {
  using Total = float;
  static constexpr float load(Float16 value) { return to_float(value); }
  static constexpr Float16 store(float total) { return to_float16(total); }
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

}  // namespace lockstep::inline v0::allreduce
