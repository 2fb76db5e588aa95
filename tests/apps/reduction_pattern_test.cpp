#include "apps/lockstep/allreduce_bench/reduction_timing.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::inline v0::apps {
namespace {

constexpr std::size_t kCount = 10'007;  // several blocks and a partial one

template <typename T>
float to_float(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<float>(value);
  } else {
    float wide = 0;
    widen(std::span<const T>(&value, 1), std::span(&wide, 1));
    return wide;
  }
}

template <typename T>
T from_float(float value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    T result;
    narrow(std::span<const float>(&value, 1), std::span(&result, 1));
    return result;
  }
}

/// The sum of the replicas' values in order, rounded to T after each addition.
template <typename T>
std::vector<T> sum_over(int replicas, const ReductionPattern<T>& pattern) {
  std::vector<T> sum(kCount, T{});
  std::vector<T> one(kCount);
  for (int replica = 0; replica < replicas; ++replica) {
    pattern.fill(replica, one);
    for (std::size_t i = 0; i < kCount; ++i)
      sum[i] = from_float<T>(to_float(sum[i]) + to_float(one[i]));
  }
  return sum;
}

template <typename T>
class TypedReductionPattern : public ::testing::Test {};
using Types = ::testing::Types<float, double, Float16, BFloat16, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(TypedReductionPattern, Types);

TYPED_TEST(TypedReductionPattern, HasExpectedSum) {
  for (const int replicas : {1, 2, 3, 4, 7, 64, 128, 500}) {
    const ReductionPattern<TypeParam> pattern(replicas);
    EXPECT_EQ(pattern.count_errors(sum_over(replicas, pattern)), 0) << replicas << " replicas";
  }
}

TYPED_TEST(TypedReductionPattern, CountsErrors) {
  const ReductionPattern<TypeParam> pattern(4);
  std::vector<TypeParam> sum = sum_over(4, pattern);
  for (const std::size_t i : {std::size_t{0}, std::size_t{4096}, kCount - 1})
    sum[i] = from_float<TypeParam>(to_float(sum[i]) + 1);
  EXPECT_EQ(pattern.count_errors(sum), 3);
}

TYPED_TEST(TypedReductionPattern, DetectsMissingReplica) {
  const ReductionPattern<TypeParam> pattern(3);
  std::vector<TypeParam> sum = sum_over(2, pattern);
  const std::int64_t zeros_of_the_third = 1 + static_cast<std::int64_t>(kCount) / 3;
  EXPECT_GT(pattern.count_errors(sum), static_cast<std::int64_t>(kCount) - zeros_of_the_third);
}

TYPED_TEST(TypedReductionPattern, DetectsMisplacedValues) {
  const ReductionPattern<TypeParam> pattern(4);
  std::vector<TypeParam> sum = sum_over(4, pattern);
  std::swap_ranges(sum.begin(), sum.begin() + 1024, sum.begin() + 4096);
  EXPECT_GT(pattern.count_errors(sum), 0);
}

TEST(ReductionPattern, CountsNaNAsError) {
  const ReductionPattern<float> pattern(2);
  std::vector<float> sum = sum_over(2, pattern);
  sum[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(pattern.count_errors(sum), 1);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
