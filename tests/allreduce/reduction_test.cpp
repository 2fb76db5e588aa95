// Reductions of elements in memory: slices, the loops of the CPU, the arithmetic that CPU and GPU
// share, wire scales.
#include "lockstep/allreduce/member/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lockstep/allreduce/member/element.h"

namespace lockstep::inline v0::allreduce {
namespace {

template <std::size_t size>
std::array<const std::byte*, size> sources(const std::array<std::byte*, size>& members) {
  std::array<const std::byte*, size> readable{};
  std::ranges::copy(members, readable.begin());
  return readable;
}

TEST(SliceOf, CoversEveryElementOnceInWholeCacheLines) {
  for (const ElementType type :
       {ElementType::float16, ElementType::float32, ElementType::float64}) {
    const std::size_t line = 64 / bytes_per_element(type);
    for (const int parts : {1, 2, 3, 7}) {
      for (const std::size_t count : {0UL, 1UL, 15UL, 16UL, 17UL, 1000UL, 100'003UL}) {
        std::size_t end = 0;
        for (int part = 0; part < parts; ++part) {
          const Slice slice = slice_of(count, type, parts, part);
          EXPECT_EQ(slice.begin, end);
          EXPECT_LE(slice.begin, slice.end);
          EXPECT_LE(slice.end - slice.begin,
                    (count / line / static_cast<std::size_t>(parts) + 2) * line);
          EXPECT_TRUE(slice.end == count || slice.end % line == 0);
          end = slice.end;
        }
        EXPECT_EQ(end, count);
      }
    }
  }
}

TEST(ReduceSlice, WritesNothingOutsideTheSlice) {
  std::vector<double> first(3000, 1.0);
  std::vector<double> second(3000, 10.0);
  const std::array<std::byte*, 2> members = {reinterpret_cast<std::byte*>(first.data()),
                                             reinterpret_cast<std::byte*>(second.data())};
  reduce_slice(sources(members), members, {5, 2500}, ElementType::float64, ReduceOp::sum);
  for (std::size_t i = 0; i < 3000; ++i) {
    const bool inside = i >= 5 && i < 2500;
    ASSERT_EQ(first[i], inside ? 11.0 : 1.0) << i;
    ASSERT_EQ(second[i], inside ? 11.0 : 10.0) << i;
  }
}

TEST(ReduceSlice, CanWriteTheResultToTheFirstMemberOnly) {
  std::vector<std::int64_t> first = {1, 2, 3};
  std::vector<std::int64_t> second = {5, 0, 3};
  std::vector<std::int64_t> third = {2, 9, 1};
  const std::array<std::byte*, 3> members = {reinterpret_cast<std::byte*>(first.data()),
                                             reinterpret_cast<std::byte*>(second.data()),
                                             reinterpret_cast<std::byte*>(third.data())};
  reduce_slice(sources(members), std::span(members).first(1), {0, 3}, ElementType::int64,
               ReduceOp::max);
  EXPECT_EQ(first, (std::vector<std::int64_t>{5, 9, 3}));
  EXPECT_EQ(second, (std::vector<std::int64_t>{5, 0, 3}));
  EXPECT_EQ(third, (std::vector<std::int64_t>{2, 9, 1}));
}

TEST(ReduceInto, ComputesTheMinimum) {
  std::vector<std::int32_t> into = {1, 2, 3};
  const std::vector<std::int32_t> from = {3, 2, 1};
  reduce_into(reinterpret_cast<std::byte*>(into.data()),
              reinterpret_cast<const std::byte*>(from.data()), 3, ElementType::int32,
              ReduceOp::min);
  EXPECT_EQ(into, (std::vector<std::int32_t>{1, 2, 1}));
}

// Every 16-bit pattern.
template <typename Half>
std::vector<Half> all_halves() {
  std::vector<Half> halves(std::size_t{1} << 16);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i].bits = static_cast<std::uint16_t>(i);
  return halves;
}

template <typename Half>
std::vector<float> widened(const std::vector<Half>& halves) {
  std::vector<float> wide(halves.size());
  widen(std::span<const Half>(halves), wide);
  return wide;
}

template <typename Half>
std::vector<Half> narrowed(const std::vector<float>& values) {
  std::vector<Half> halves(values.size());
  narrow(values, std::span(halves));
  return halves;
}

template <typename Half>
class HalfElement : public ::testing::Test {};

using Halves = ::testing::Types<Float16, BFloat16>;
TYPED_TEST_SUITE(HalfElement, Halves);

TYPED_TEST(HalfElement, LoadsEveryValueExactly) {
  const std::vector<TypeParam> halves = all_halves<TypeParam>();
  const std::vector<float> expected = widened(halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const float loaded = Element<TypeParam>::load(halves[i]);
    if (std::isnan(expected[i]))
      ASSERT_TRUE(std::isnan(loaded)) << i;
    else
      ASSERT_EQ(std::bit_cast<std::uint32_t>(loaded), std::bit_cast<std::uint32_t>(expected[i]))
          << i;
  }
}

TYPED_TEST(HalfElement, RoundsToTheNearestAndTiesToEven) {
  std::vector<float> values;
  for (const float exact : widened(all_halves<TypeParam>())) {
    if (std::isnan(exact)) continue;
    // The value, the adjacent floats, and the midpoint between it and the next half with its
    // adjacent floats.
    const auto bits = std::bit_cast<std::uint32_t>(exact);
    for (const std::uint32_t offset : {0U, 1U, 0xfffU, 0x1000U, 0x1001U, 0x7fffU, 0x8000U, 0x8001U})
      for (const std::uint32_t nearby : {bits + offset, bits - offset})
        values.push_back(std::bit_cast<float>(nearby));
  }
  for (const float value :
       {std::numeric_limits<float>::max(), 65519.0F, 65520.0F, 0x1p-24F, 0x1p-25F, 0x1.8p-25F,
        std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity()})
    for (const float sign : {1.0F, -1.0F}) values.push_back(sign * value);
  const std::vector<TypeParam> expected = narrowed<TypeParam>(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TypeParam stored = Element<TypeParam>::store(values[i]);
    if (std::isnan(values[i]))
      ASSERT_TRUE(std::isnan(Element<TypeParam>::load(stored))) << i;
    else
      ASSERT_EQ(stored.bits, expected[i].bits) << values[i];
  }
}

template <typename T>
struct MakeValue {
  static T of(int i) { return static_cast<T>(i); }
};
template <>
struct MakeValue<float> {
  static float of(int i) {
    return std::sin(static_cast<float>(i)) * std::pow(10.0F, static_cast<float>(i % 7));
  }
};
template <>
struct MakeValue<double> {
  static double of(int i) { return std::sin(i) * std::pow(10.0, i % 7); }
};
template <>
struct MakeValue<Float16> {
  static Float16 of(int i) { return narrowed<Float16>({MakeValue<float>::of(i) / 1024}).front(); }
};
template <>
struct MakeValue<BFloat16> {
  static BFloat16 of(int i) { return narrowed<BFloat16>({MakeValue<float>::of(i)}).front(); }
};

template <typename Op, typename T>
void expect_same_bits_as_loops(ElementType type, ReduceOp op) {
  constexpr std::size_t kCount = 3001;
  for (const std::size_t members : {2U, 3U, 5U}) {
    std::vector<std::vector<T>> values(members, std::vector<T>(kCount));
    for (std::size_t member = 0; member < members; ++member)
      for (std::size_t i = 0; i < kCount; ++i)
        values[member][i] = MakeValue<T>::of(static_cast<int>(i * 31 + member * 1009) - 40'000);
    std::vector<T> expected(kCount);
    std::vector<const std::byte*> sources;
    for (const std::vector<T>& each : values)
      sources.push_back(reinterpret_cast<const std::byte*>(each.data()));
    reduce_slice(sources, std::array{reinterpret_cast<std::byte*>(expected.data())}, {0, kCount},
                 type, op);
    for (std::size_t i = 0; i < kCount; ++i) {
      const T reduced = reduce_element<Op, T>(static_cast<int>(members), [&](int member) {
        return values[static_cast<std::size_t>(member)][i];
      });
      ASSERT_EQ(std::memcmp(&reduced, &expected[i], sizeof(T)), 0)
          << i << " of " << members << " members";
    }
  }
}

template <typename T>
void expect_same_bits_as_loops(ElementType type) {
  expect_same_bits_as_loops<Sum, T>(type, ReduceOp::sum);
  expect_same_bits_as_loops<Max, T>(type, ReduceOp::max);
  expect_same_bits_as_loops<Min, T>(type, ReduceOp::min);
  expect_same_bits_as_loops<Product, T>(type, ReduceOp::product);
}

TEST(ReduceElement, MatchesTheLoopsBitwiseForFloat32) {
  expect_same_bits_as_loops<float>(ElementType::float32);
}
TEST(ReduceElement, MatchesTheLoopsBitwiseForFloat64) {
  expect_same_bits_as_loops<double>(ElementType::float64);
}
TEST(ReduceElement, MatchesTheLoopsBitwiseForFloat16) {
  expect_same_bits_as_loops<Float16>(ElementType::float16);
}
TEST(ReduceElement, MatchesTheLoopsBitwiseForBFloat16) {
  expect_same_bits_as_loops<BFloat16>(ElementType::bfloat16);
}
TEST(ReduceElement, MatchesTheLoopsBitwiseForUint8) {
  expect_same_bits_as_loops<std::uint8_t>(ElementType::uint8);
}
TEST(ReduceElement, MatchesTheLoopsBitwiseForInt32) {
  expect_same_bits_as_loops<std::int32_t>(ElementType::int32);
}
TEST(ReduceElement, MatchesTheLoopsBitwiseForInt64) {
  expect_same_bits_as_loops<std::int64_t>(ElementType::int64);
}

TEST(Scale, RoundsTheProductOnce) {
  std::vector<float> singles = {1, -3, 0};
  scale(std::span(singles), 1.0 / 3);
  EXPECT_EQ(singles, (std::vector<float>{1.0F / 3, -1, 0}));
  std::vector<double> doubles = {1, -3};
  scale(std::span(doubles), 1.0 / 3);
  EXPECT_EQ(doubles, (std::vector<double>{1.0 / 3, -1}));
  std::vector<Float16> halves = {to_float16(3), to_float16(-0.5F)};
  scale(std::span(halves), 0.5);
  EXPECT_EQ(to_float(halves[0]), 1.5F);
  EXPECT_EQ(to_float(halves[1]), -0.25F);
}

TEST(WireScale, MaximizesTheSum) {
  for (const float largest : {1e-20F, 3e-9F, 0.3F, 1.0F, 1.5F, 70000.0F, 1e30F})
    for (const int members : {1, 2, 3, 64}) {
      const float scale = wire_scale(largest, members);
      EXPECT_EQ(std::scalbn(1.0F, std::ilogb(scale)), scale) << "a power of two";
      EXPECT_LE(scale * largest * static_cast<float>(members), 32768.0F);
      EXPECT_GT(scale * largest * static_cast<float>(members), 16383.0F);
    }
}

TEST(WireScale, StaysWithinFloat32) {
  EXPECT_EQ(wire_scale(std::numeric_limits<float>::denorm_min(), 1), 0x1p100F);
  EXPECT_EQ(wire_scale(std::numeric_limits<float>::max(), 1000), 0x1p-126F);
  EXPECT_EQ(wire_scale(0x1p120F, 2), 0x1p-106F) << "the largest power of two that fits";
}

TEST(WireScale, IsOneForValuesThatCannotBeScaled) {
  for (const float largest :
       {0.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_EQ(wire_scale(largest, 2), 1.0F);
}

TEST(MagnitudeBits, AreOrderedAndEndAtInfinity) {
  EXPECT_EQ(magnitude_bits(-0.0F), 0U);
  EXPECT_LT(magnitude_bits(-1.0F), magnitude_bits(1.5F));
  EXPECT_EQ(magnitude_bits(std::numeric_limits<float>::quiet_NaN()),
            magnitude_bits(-std::numeric_limits<float>::infinity()));
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
