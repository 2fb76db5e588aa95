// Efficient numbers of replicas.
#include "apps/lockstep/plan/scaling_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/apps/plan/calibrations.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::array<int, 3> kCounts{2, 16, 64};
const Hardware kInstant{.bits_per_second = 1e13, .latency_seconds = 0};

/// The time of a step is proportional to its samples, down to one.
Calibration scalable_calibration() {
  Calibration calibration = plain_calibration();
  calibration.timings[0].seconds /= 8;
  calibration.timings[0].update_seconds /= 8;
  return calibration;
}

TEST(ScalingPlan, HasARowPerNumberAndForOne) {
  const ScalingPlan plan =
      plan_scaling(plain_calibration(), kInstant, {.global_batch = 512}, kCounts);
  std::vector<int> replicas;
  for (const Prediction& row : plan.rows) replicas.push_back(row.replicas);
  EXPECT_EQ(replicas, (std::vector<int>{1, 2, 16, 64}));
  EXPECT_EQ(plan.most, 64);
}

TEST(ScalingPlan, IsEfficientWithoutLimits) {
  const ScalingPlan plan =
      plan_scaling(scalable_calibration(), kInstant, {.global_batch = 512 * 64}, kCounts);
  EXPECT_EQ(plan.efficient_up_to, 64);
  EXPECT_EQ(plan.fastest, 64);
  EXPECT_EQ(plan.limit, "");
  EXPECT_FALSE(plan.link_for_all);
  EXPECT_FALSE(plan.batch_for_all);
}

TEST(ScalingPlan, FindsTheMinimumLink) {
  const Hardware slow{.bits_per_second = 1e9, .latency_seconds = 0};
  const ScalingPlan plan =
      plan_scaling(scalable_calibration(), slow, {.global_batch = 512, .weak = true}, kCounts);
  EXPECT_EQ(plan.efficient_up_to, 64);  // 64 ms of sending for 512 ms of computation
  const ScalingPlan strong =
      plan_scaling(scalable_calibration(), slow, {.global_batch = 512}, kCounts);
  EXPECT_LT(strong.efficient_up_to, 16);
  EXPECT_EQ(strong.limit, "communication");
  ASSERT_TRUE(strong.link_for_all);
  Hardware faster = slow;
  faster.bits_per_second = *strong.link_for_all;
  EXPECT_EQ(
      plan_scaling(scalable_calibration(), faster, {.global_batch = 512}, kCounts).efficient_up_to,
      64);
  faster.bits_per_second *= 0.9;
  EXPECT_LT(
      plan_scaling(scalable_calibration(), faster, {.global_batch = 512}, kCounts).efficient_up_to,
      64);
}

TEST(ScalingPlan, FindsTheMinimumBatch) {
  // Steps of fewer than 8 samples are not faster, so that 64 samples are enough for 8 replicas.
  const ScalingPlan plan =
      plan_scaling(plain_calibration(), kInstant, {.global_batch = 64}, kCounts);
  EXPECT_EQ(plan.limit, "compute");
  EXPECT_GE(plan.efficient_up_to, 8);
  EXPECT_LT(plan.efficient_up_to, 16);
  EXPECT_FALSE(plan.link_for_all);
  ASSERT_TRUE(plan.batch_for_all);
  EXPECT_EQ(plan_scaling(plain_calibration(), kInstant, {.global_batch = 64 * *plan.batch_for_all},
                         kCounts)
                .efficient_up_to,
            64);
  EXPECT_TRUE(plan.batch_is_covered);
}

TEST(ScalingPlan, FindsTheFastestAndTheCheapest) {
  const ScalingPlan plan =
      plan_scaling(plain_calibration(), {.bits_per_second = 1e8, .latency_seconds = 0},
                   {.global_batch = 64}, kCounts);
  EXPECT_EQ(plan.cheapest, 1);
  EXPECT_EQ(plan.fastest, 1);  // 8 MB a step over 100 Mbit/s
  EXPECT_EQ(plan.efficient_up_to, 1);
}

TEST(ScalingPlan, ListsItsAssumptions) {
  Calibration calibration = plain_calibration();
  calibration.transfer_seconds_per_byte = 1.4e-9;
  const ScalingOptions options{.global_batch = 1024};
  const ScalingPlan plan = plan_scaling(calibration, {}, options, kCounts);
  const std::vector<std::string> texts = assumptions(calibration, {}, options, plan);
  EXPECT_THAT(texts, Contains(HasSubstr("each link carries 1 Gbit/s both ways")));
  EXPECT_THAT(texts, Contains(HasSubstr("takes 1.4 ns of a core, which the computation lacks")));
  EXPECT_THAT(texts, Contains(HasSubstr("(strong scaling)")));
  EXPECT_THAT(texts, Contains(HasSubstr("batches of 1 to 512 per replica were measured")));
}

TEST(ScalingPlan, FormatsBitRates) {
  EXPECT_EQ(bit_rate_text(25e9), "25 Gbit/s");
  EXPECT_EQ(bit_rate_text(1e8), "100 Mbit/s");
  EXPECT_EQ(bit_rate_text(5e4), "50 kbit/s");
}

}  // namespace
}  // namespace lockstep::inline v0::apps
