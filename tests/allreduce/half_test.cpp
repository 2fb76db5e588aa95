// 16-bit floats on every route.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/allreduce/group_kinds.h"

namespace lockstep::allreduce {
namespace {

class Half : public ::testing::TestWithParam<GroupKind> {};

template <typename T>
std::vector<T> narrowed(const std::vector<float>& values) {
  std::vector<T> result(values.size());
  narrow(values, std::span(result));
  return result;
}

template <typename T>
std::vector<float> widened(const std::vector<T>& values) {
  std::vector<float> result(values.size());
  widen(std::span<const T>(values), result);
  return result;
}

// Integers up to 256 are exact in both types.
template <typename T>
void expect_exact_sums(const GroupKind& kind) {
  run(kind, [](const Communicator& group) {
    const int n = group.size();
    for (const std::size_t count : {0UL, 1UL, 33UL, 50'001UL}) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(group.rank() + static_cast<int>(i % 13));
      std::vector<T> halves = narrowed<T>(values);
      std::vector<T> largest = halves;
      sum_and_wait(group, halves);
      reduce_and_wait(group, largest, ReduceOp::max);
      const std::vector<float> sums = widened(halves);
      const std::vector<float> maxima = widened(largest);
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(sums[i], static_cast<float>(sum_of_ranks(n) + n * static_cast<int>(i % 13))) << i << " of " << count;
        ASSERT_EQ(maxima[i], static_cast<float>(n - 1 + static_cast<int>(i % 13))) << i << " of " << count;
      }
    }
  });
}

TEST_P(Half, SumsFloat16) { expect_exact_sums<Float16>(GetParam()); }
TEST_P(Half, SumsBFloat16) { expect_exact_sums<BFloat16>(GetParam()); }

template <typename T>
void expect_rounded(const GroupKind& kind, float precision) {
  run(kind, [&](const Communicator& group) {
    std::vector<float> mine(1000);
    std::vector<float> exact(1000, 0);
    std::vector<float> magnitude(1000, 0);
    for (int rank = 0; rank < group.size(); ++rank)
      for (std::size_t i = 0; i < mine.size(); ++i) {
        const float value = std::sin(static_cast<float>(i * 7 + 1) * static_cast<float>(rank + 1));
        exact[i] += value;
        magnitude[i] += std::abs(value);
        if (rank == group.rank()) mine[i] = value;
      }
    std::vector<T> halves = narrowed<T>(mine);
    sum_and_wait(group, halves);
    const std::vector<float> sums = widened(halves);
    // Each value is rounded once, and at worst each partial sum.
    for (std::size_t i = 0; i < sums.size(); ++i)
      ASSERT_NEAR(sums[i], exact[i], magnitude[i] * precision * static_cast<float>(group.size())) << i;
  });
}

TEST_P(Half, Float16LosesThirteenBits) { expect_rounded<Float16>(GetParam(), 0x1p-11F); }
TEST_P(Half, BFloat16LosesSixteenBits) { expect_rounded<BFloat16>(GetParam(), 0x1p-8F); }

INSTANTIATE_TEST_SUITE_P(Groups, Half, ::testing::ValuesIn(group_kinds()), name_of_kind);

}  // namespace
}  // namespace lockstep::allreduce
