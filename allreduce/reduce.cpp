#include "allreduce/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>
#include <cstring>
#include <type_traits>

namespace lockstep::allreduce {
namespace {

constexpr std::size_t kCacheLine = 64;
// Two blocks fit the first-level cache with room to spare: one that accumulates, one that streams in.
constexpr std::size_t kBlockBytes = 4096;

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    if constexpr (std::integral<T>) {
      // Integers wrap around, as they do in MPI; signed overflow would be undefined.
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};

// A NaN on any member must reach all: `b` is taken unless `a` is NaN or beats it, and a NaN `b` is never beaten.
template <typename T>
bool is_nan(T value) {
  if constexpr (std::floating_point<T>)
    return std::isnan(value);
  else
    return false;
}

struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return a > b || is_nan(a) ? a : b;
  }
};

struct Min {
  template <typename T>
  static T apply(T a, T b) {
    return a < b || is_nan(a) ? a : b;
  }
};

template <typename Op, typename T>
void combine(T* __restrict into, const T* __restrict first, const T* __restrict second, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = Op::apply(first[i], second[i]);
}

template <typename Op, typename T>
void combine_in_place(T* __restrict into, const T* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = Op::apply(from[i], into[i]);
}

template <typename Op, typename T>
void append(T* __restrict accumulated, const T* __restrict next, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) accumulated[i] = Op::apply(accumulated[i], next[i]);
}

template <typename Op, typename T>
void reduce_slice_as(std::span<std::byte* const> members, Slice slice, ResultGoesTo result) {
  constexpr std::size_t kBlock = kBlockBytes / sizeof(T);
  alignas(kCacheLine) std::array<T, kBlock> block;
  const auto values_of = [&](std::size_t member) { return reinterpret_cast<T*>(members[member]); };
  const std::size_t receivers = result == ResultGoesTo::every_member ? members.size() : 1;
  for (std::size_t begin = slice.begin; begin < slice.end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, slice.end - begin);
    combine<Op>(block.data(), values_of(0) + begin, values_of(1) + begin, count);
    for (std::size_t member = 2; member < members.size(); ++member)
      append<Op>(block.data(), values_of(member) + begin, count);
    for (std::size_t member = 0; member < receivers; ++member)
      std::memcpy(values_of(member) + begin, block.data(), count * sizeof(T));
  }
}

// Calls `run` with values of the operation's and the element's static types.
template <typename Run>
void dispatch(ElementType type, ReduceOp op, Run run) {
  const auto with_op = [&](auto element) {
    switch (op) {
      case ReduceOp::sum:
        return run(Sum{}, element);
      case ReduceOp::max:
        return run(Max{}, element);
      case ReduceOp::min:
        return run(Min{}, element);
    }
  };
  switch (type) {
    case ElementType::float32:
      return with_op(float{});
    case ElementType::float64:
      return with_op(double{});
    case ElementType::int32:
      return with_op(std::int32_t{});
    case ElementType::int64:
      return with_op(std::int64_t{});
  }
}

}  // namespace

std::size_t bytes_per_element(ElementType type) {
  return type == ElementType::float32 || type == ElementType::int32 ? 4 : 8;
}

std::string_view name_of(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return "float32";
    case ElementType::float64:
      return "float64";
    case ElementType::int32:
      return "int32";
    case ElementType::int64:
      return "int64";
  }
  return "unknown";
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "unknown";
}

Slice slice_of(std::size_t count, ElementType type, int parts, int part) {
  const std::size_t per_line = kCacheLine / bytes_per_element(type);
  const std::size_t lines = (count + per_line - 1) / per_line;
  const auto boundary = [&](std::size_t index) {
    return std::min(count, lines * index / static_cast<std::size_t>(parts) * per_line);
  };
  return {boundary(static_cast<std::size_t>(part)), boundary(static_cast<std::size_t>(part) + 1)};
}

void reduce_into(std::byte* into, const std::byte* from, std::size_t count, ElementType type, ReduceOp op) {
  dispatch(type, op, [&]<typename Op, typename T>(Op, T) {
    combine_in_place<Op>(reinterpret_cast<T*>(into), reinterpret_cast<const T*>(from), count);
  });
}

void reduce_slice(std::span<std::byte* const> members, Slice slice, ElementType type, ReduceOp op,
                  ResultGoesTo result) {
  if (members.size() < 2) return;
  dispatch(type, op, [&]<typename Op, typename T>(Op, T) { reduce_slice_as<Op, T>(members, slice, result); });
}

}  // namespace lockstep::allreduce
