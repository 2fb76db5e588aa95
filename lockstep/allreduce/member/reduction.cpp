#include "lockstep/allreduce/member/reduction.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "lockstep/allreduce/member/element.h"
#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr auto kElementTypes = enum_names<ElementType>({{ElementType::float32, "float32"},
                                                        {ElementType::float64, "float64"},
                                                        {ElementType::float16, "float16"},
                                                        {ElementType::bfloat16, "bfloat16"},
                                                        {ElementType::uint8, "uint8"},
                                                        {ElementType::int32, "int32"},
                                                        {ElementType::int64, "int64"}});
constexpr auto kReduceOps = enum_names<ReduceOp>({{ReduceOp::sum, "sum"},
                                                  {ReduceOp::max, "max"},
                                                  {ReduceOp::min, "min"},
                                                  {ReduceOp::product, "product"}});

}  // namespace

std::string to_string(WireType type) { return std::string(kNamesOf<WireType>.name(type)); }

std::string_view name_of(ElementType type) { return kElementTypes.name(type); }

std::string_view name_of(ReduceOp op) { return kReduceOps.name(op); }

namespace {

// Two blocks fit into the L1 cache: the accumulator and the input.
constexpr std::size_t kBlockBytes = 4096;

// Conversion between the stored type T and the type of sums: the same type, except that 16-bit
// floats are widened to float32.
template <typename T>
struct Elements {
  using Total = T;
  static const T* load(const T* from, std::size_t, T*) { return from; }
  static void store(const T* from, T* to, std::size_t count) {
    std::memcpy(to, from, count * sizeof(T));
  }
};

template <typename Half>
struct HalfElements {
  using Total = float;
  static const float* load(const Half* from, std::size_t count, float* scratch) {
    widen(std::span(from, count), std::span(scratch, count));
    return scratch;
  }
  static void store(const float* from, Half* to, std::size_t count) {
    narrow(std::span(from, count), std::span(to, count));
  }
};

template <>
struct Elements<Float16> : HalfElements<Float16> {};
template <>
struct Elements<BFloat16> : HalfElements<BFloat16> {};

template <typename Op, typename T>
void combine(T* __restrict into, const T* __restrict first, const T* __restrict second,
             std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) into[i] = Op::apply(first[i], second[i]);
}

template <typename Op, typename T>
void append(T* __restrict accumulated, const T* __restrict next, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) accumulated[i] = Op::apply(accumulated[i], next[i]);
}

// The most common case, in place with few members: one pass that writes only results.
template <typename Op, typename T, typename... Others>
void reduce_everywhere(std::size_t count, T* __restrict first, Others* __restrict... others) {
  for (std::size_t i = 0; i < count; ++i) {
    T total = first[i];
    ((total = Op::apply(total, others[i])), ...);
    first[i] = total;
    ((others[i] = total), ...);
  }
}

template <typename Op, typename T>
bool reduce_few(std::span<const std::byte* const> members, std::span<std::byte* const> results,
                Slice slice) {
  if (members.size() > 4 || !std::ranges::equal(members, results)) return false;
  const auto values_of = [&](std::size_t member) {
    return reinterpret_cast<T*>(results[member]) + slice.begin;
  };
  const std::size_t count = slice.end - slice.begin;
  if (members.size() == 2) reduce_everywhere<Op>(count, values_of(0), values_of(1));
  if (members.size() == 3) reduce_everywhere<Op>(count, values_of(0), values_of(1), values_of(2));
  if (members.size() == 4)
    reduce_everywhere<Op>(count, values_of(0), values_of(1), values_of(2), values_of(3));
  return true;
}

template <typename Op, typename T>
void reduce_slice_as(std::span<const std::byte* const> members, std::span<std::byte* const> results,
                     Slice slice) {
  using Total = typename Elements<T>::Total;
  if constexpr (std::is_same_v<T, Total>)
    if (reduce_few<Op, T>(members, results, slice)) return;
  constexpr std::size_t kBlock = kBlockBytes / sizeof(Total);
  alignas(kCacheLine) std::array<Total, kBlock> block;
  alignas(kCacheLine) std::array<Total, kBlock> scratch;
  alignas(kCacheLine) std::array<Total, kBlock> second_scratch;
  const auto values_of = [&](std::size_t member) {
    return reinterpret_cast<const T*>(members[member]);
  };
  for (std::size_t begin = slice.begin; begin < slice.end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, slice.end - begin);
    combine<Op>(block.data(), Elements<T>::load(values_of(0) + begin, count, scratch.data()),
                Elements<T>::load(values_of(1) + begin, count, second_scratch.data()), count);
    for (std::size_t member = 2; member < members.size(); ++member)
      append<Op>(block.data(), Elements<T>::load(values_of(member) + begin, count, scratch.data()),
                 count);
    for (std::byte* result : results)
      Elements<T>::store(block.data(), reinterpret_cast<T*>(result) + begin, count);
  }
}

template <typename Op, typename T>
void reduce_into_as(T* into, const T* from, std::size_t count) {
  std::array<std::byte*, 1> result{reinterpret_cast<std::byte*>(into)};
  const std::array<const std::byte*, 2> members{reinterpret_cast<const std::byte*>(from),
                                                result[0]};
  reduce_slice_as<Op, T>(members, result, {0, count});
}

// Calls `run` with the static types of the operation and the element.
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
      case ReduceOp::product:
        return run(Product{}, element);
    }
  };
  switch (type) {
    case ElementType::float32:
      return with_op(float{});
    case ElementType::float64:
      return with_op(double{});
    case ElementType::float16:
      return with_op(Float16{});
    case ElementType::bfloat16:
      return with_op(BFloat16{});
    case ElementType::uint8:
      return with_op(std::uint8_t{});
    case ElementType::int32:
      return with_op(std::int32_t{});
    case ElementType::int64:
      return with_op(std::int64_t{});
  }
}

}  // namespace

std::size_t bytes_per_element(ElementType type) {
  switch (type) {
    case ElementType::uint8:
      return 1;
    case ElementType::float16:
    case ElementType::bfloat16:
      return 2;
    case ElementType::float32:
    case ElementType::int32:
      return 4;
    case ElementType::float64:
    case ElementType::int64:
      return 8;
  }
  return 0;
}

Slice slice_of(std::size_t count, ElementType type, int parts, int part) {
  const std::size_t per_line = kCacheLine / bytes_per_element(type);
  const std::size_t lines = (count + per_line - 1) / per_line;
  const auto boundary = [&](std::size_t index) {
    return std::min(count, lines * index / static_cast<std::size_t>(parts) * per_line);
  };
  return {boundary(static_cast<std::size_t>(part)), boundary(static_cast<std::size_t>(part) + 1)};
}

void reduce_into(std::byte* into, const std::byte* from, std::size_t count, ElementType type,
                 ReduceOp op) {
  dispatch(type, op, [&]<typename Op, typename T>(Op, T) {
    reduce_into_as<Op>(reinterpret_cast<T*>(into), reinterpret_cast<const T*>(from), count);
  });
}

void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results,
                  Slice slice, ElementType type, ReduceOp op) {
  if (members.size() < 2) return;
  dispatch(type, op, [&]<typename Op, typename T>(Op, T) {
    reduce_slice_as<Op, T>(members, results, slice);
  });
}

template <Fractional T>
void scale(std::span<T> values, double factor) {
  if (factor == 1) return;
  for (T& value : values)
    value = Element<T>::store(
        static_cast<typename Element<T>::Total>(Element<T>::load(value) * factor));
}

template void scale(std::span<float>, double);
template void scale(std::span<double>, double);
template void scale(std::span<Float16>, double);
template void scale(std::span<BFloat16>, double);

}  // namespace lockstep::inline v0::allreduce
