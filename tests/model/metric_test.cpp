#include "model/metric.h"

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

TEST(MetricSums, MeansAreOverAllSamplesOfAllParts) {
  MetricSums total{.loss = 1, .samples = 1, .correct = 1, .correct_top5 = 1, .has_accuracy = true};
  total += MetricSums{.loss = 5, .samples = 3, .correct = 0, .correct_top5 = 2, .has_accuracy = true};
  EXPECT_EQ(total.mean_loss(), 1.5) << "not the mean of the parts' means";
  EXPECT_EQ(total.accuracy(), 0.25);
  EXPECT_EQ(total.top5_accuracy(), 0.75);
}

TEST(MetricSums, APartWithoutSamplesChangesNothing) {
  MetricSums total{.loss = 2, .samples = 2, .correct = 1, .correct_top5 = 2, .has_accuracy = true};
  total += MetricSums{};
  EXPECT_EQ(total.mean_loss(), 1);
  EXPECT_TRUE(total.has_accuracy);
}

TEST(MetricSums, OfNothingAreZero) {
  EXPECT_EQ(MetricSums{}.mean_loss(), 0);
  EXPECT_EQ(MetricSums{}.accuracy(), 0);
  EXPECT_EQ(MetricSums{}.top5_accuracy(), 0);
}

}  // namespace
}  // namespace lockstep::model
