#include "lockstep/allreduce/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

namespace lockstep::allreduce {
namespace {

template <std::size_t size>
std::array<const std::byte*, size> sources(const std::array<std::byte*, size>& members) {
  std::array<const std::byte*, size> readable{};
  std::ranges::copy(members, readable.begin());
  return readable;
}

TEST(SliceOf, CoversEveryElementOnceInWholeCacheLines) {
  for (const ElementType type : {ElementType::float16, ElementType::float32, ElementType::float64}) {
    const std::size_t line = 64 / bytes_per_element(type);
    for (const int parts : {1, 2, 3, 7}) {
      for (const std::size_t count : {0UL, 1UL, 15UL, 16UL, 17UL, 1000UL, 100'003UL}) {
        std::size_t end = 0;
        for (int part = 0; part < parts; ++part) {
          const Slice slice = slice_of(count, type, parts, part);
          EXPECT_EQ(slice.begin, end);
          EXPECT_LE(slice.begin, slice.end);
          EXPECT_LE(slice.end - slice.begin, (count / line / static_cast<std::size_t>(parts) + 2) * line);
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

TEST(ReduceSlice, CanLeaveTheResultWithTheFirstMemberAlone) {
  std::vector<std::int64_t> first = {1, 2, 3};
  std::vector<std::int64_t> second = {5, 0, 3};
  std::vector<std::int64_t> third = {2, 9, 1};
  const std::array<std::byte*, 3> members = {reinterpret_cast<std::byte*>(first.data()),
                                             reinterpret_cast<std::byte*>(second.data()),
                                             reinterpret_cast<std::byte*>(third.data())};
  reduce_slice(sources(members), std::span(members).first(1), {0, 3}, ElementType::int64, ReduceOp::max);
  EXPECT_EQ(first, (std::vector<std::int64_t>{5, 9, 3}));
  EXPECT_EQ(second, (std::vector<std::int64_t>{5, 0, 3}));
  EXPECT_EQ(third, (std::vector<std::int64_t>{2, 9, 1}));
}

TEST(ReduceInto, TakesTheMinimum) {
  std::vector<std::int32_t> into = {1, 2, 3};
  const std::vector<std::int32_t> from = {3, 2, 1};
  reduce_into(reinterpret_cast<std::byte*>(into.data()), reinterpret_cast<const std::byte*>(from.data()), 3,
              ElementType::int32, ReduceOp::min);
  EXPECT_EQ(into, (std::vector<std::int32_t>{1, 2, 1}));
}

}  // namespace
}  // namespace lockstep::allreduce
