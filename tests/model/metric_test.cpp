#include "lockstep/model/loss.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <span>

namespace lockstep::model {
namespace {

TEST(MetricSums, MeansAreOverAllSamplesOfAllParts) {
  MetricSums total{
      .loss_sum = 1, .samples = 1, .correct = 1, .correct_top5 = 1, .has_accuracy = true};
  total += MetricSums{
      .loss_sum = 5, .samples = 3, .correct = 0, .correct_top5 = 2, .has_accuracy = true};
  EXPECT_EQ(total.loss(), 1.5) << "not the mean of the parts' means";
  EXPECT_EQ(total.accuracy(), 0.25);
  EXPECT_EQ(total.top5_accuracy(), 0.75);
}

TEST(MetricSums, APartWithoutSamplesChangesNothing) {
  MetricSums total{
      .loss_sum = 2, .samples = 2, .correct = 1, .correct_top5 = 2, .has_accuracy = true};
  total += MetricSums{};
  EXPECT_EQ(total.loss(), 1);
  EXPECT_TRUE(total.has_accuracy);
}

TEST(MetricSums, OfNothingAreNotANumber) {
  EXPECT_TRUE(std::isnan(MetricSums{}.loss()));
  EXPECT_TRUE(std::isnan(MetricSums{}.accuracy()));
  EXPECT_TRUE(std::isnan(MetricSums{}.top5_accuracy()));
}

TEST(MetricSums, HaveANanWithoutASign) {
  const double negative = std::copysign(std::numeric_limits<double>::quiet_NaN(), -1.0);
  EXPECT_FALSE(std::signbit(MetricSums({.loss_sum = negative, .samples = 2}).loss()));
}

TEST(MetricSums, LossIsTheMeanByWeight) {
  MetricSums total{.loss_sum = 6, .samples = 4, .correct = 1, .weight_excess = 8};
  EXPECT_EQ(total.loss(), 0.5);
  EXPECT_EQ(total.accuracy(), 0.25) << "of samples";
  total += MetricSums{.loss_sum = 0, .samples = 12, .weight_excess = -12};
  EXPECT_EQ(total.loss(), 0.5) << "samples of weight 0";
  EXPECT_TRUE(std::isnan(MetricSums({.samples = 3, .weight_excess = -3}).loss()));
}

TEST(SummableMetrics, TurnAGradientOverSamplesIntoOneOverWeights) {
  const auto factor = [](const MetricSums& sums) {
    std::array<float, SummableMetrics::kSize> values{};
    SummableMetrics(sums).write(values.data());
    EXPECT_EQ(SummableMetrics(std::span<const float, SummableMetrics::kSize>(values))
                  .sums()
                  .weight_excess,
              sums.weight_excess);
    return SummableMetrics::gradient_factor(values.data());
  };
  EXPECT_EQ(factor({.samples = 61}), 1);
  EXPECT_EQ(factor({.samples = 0}), 1);
  EXPECT_EQ(factor({.samples = 6, .weight_excess = 2}), 0.75F);
  EXPECT_EQ(factor({.samples = 6, .weight_excess = -6}), 0) << "all weights are 0";
}

TEST(SummableMetrics, CarryTheLossInTwoFloats) {
  std::array<float, SummableMetrics::kSize> values{};
  SummableMetrics({.loss_sum = 123.456789012, .samples = 61, .correct = 40, .correct_top5 = 60})
      .write(values.data());
  const MetricSums sums =
      SummableMetrics(std::span<const float, SummableMetrics::kSize>(values)).sums();
  EXPECT_NEAR(sums.loss_sum, 123.456789012, 1e-11);
  EXPECT_EQ(sums.samples, 61);
  EXPECT_EQ(sums.correct, 40);
  EXPECT_EQ(sums.correct_top5, 60);
}

TEST(SummableMetrics, CountAPartWhoseLossIsNotFiniteAndNothingElse) {
  for (const double loss :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN(), 1e39, -1e39, 3.5e38}) {
    const SummableMetrics summable(
        {.loss_sum = loss, .samples = 5, .correct = 3, .correct_top5 = 4});
    EXPECT_EQ(summable.non_finite, 1);
    EXPECT_EQ(summable.loss_high, 0);
    EXPECT_EQ(summable.samples, 0);
  }
  EXPECT_EQ(SummableMetrics({.loss_sum = 3.4e38, .samples = 5}).non_finite, 0);
}

TEST(SummableMetrics, AreFiniteWhereAllLossesAndTheirSumAre) {
  std::array<float, SummableMetrics::kSize> values{};
  SummableMetrics({.loss_sum = 3e38, .samples = 5}).write(values.data());
  EXPECT_TRUE(SummableMetrics::is_finite(values.data()));
  values[0] += values[0];
  EXPECT_FALSE(SummableMetrics::is_finite(values.data())) << "the sum of two replicas";
  SummableMetrics({.loss_sum = 1e300, .samples = 5}).write(values.data());
  EXPECT_FALSE(SummableMetrics::is_finite(values.data()));
}

}  // namespace
}  // namespace lockstep::model
