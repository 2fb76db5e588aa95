#include "lockstep/model/layers/batch_normalization/batch_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lockstep::inline v0::model {
namespace {

BatchMoments moments_of(const std::vector<float>& values) {
  BatchMoments all;
  for (const float value : values) all = combine(all, {1, value, 0});
  return all;
}

TEST(BatchStatistics, CombineTwoParts) {
  const BatchMoments whole = combine(moments_of({1, 2, 3}), moments_of({10, 20}));
  EXPECT_FLOAT_EQ(whole.count, 5);
  EXPECT_FLOAT_EQ(whole.mean, 7.2F);
  EXPECT_FLOAT_EQ(biased_variance(whole), 50.96F);
  EXPECT_FLOAT_EQ(unbiased_variance(whole), 63.7F);
}

TEST(BatchStatistics, KeepPrecisionForALargeMean) {
  EXPECT_NEAR(biased_variance(moments_of({10001, 10002, 10003, 10004})), 1.25, 1e-3);
}

TEST(BatchStatistics, IgnoreAnEmptyPart) {
  const BatchMoments some = moments_of({3, 5});
  for (const BatchMoments& both : {combine(some, {}), combine({}, some)}) {
    EXPECT_EQ(both.count, 2);
    EXPECT_EQ(both.mean, 4);
    EXPECT_EQ(both.squares, 2);
  }
  EXPECT_EQ(biased_variance({}), 0);
  EXPECT_EQ(unbiased_variance({1, 7, 0}), 0);
}

TEST(BatchStatistics, AreReadFromAnArrayOfAllMembers) {
  constexpr MomentsLayout kLayout{.channels = 2, .members = 3};
  static_assert(kLayout.size() == 15);
  std::vector<float> array(kLayout.size());
  const auto put = [&](std::size_t member, std::size_t channel, const BatchMoments& moments) {
    array[kLayout.count(member)] = moments.count;
    array[kLayout.mean(member, channel)] = moments.mean;
    array[kLayout.squares(member, channel)] = moments.squares;
  };
  put(0, 0, moments_of({1, 2}));
  put(0, 1, moments_of({5, 5}));
  put(2, 0, moments_of({6}));
  put(2, 1, moments_of({8}));
  EXPECT_FLOAT_EQ(kLayout.together(array.data(), 0).mean, 3);
  EXPECT_FLOAT_EQ(kLayout.together(array.data(), 0).squares, 14);
  EXPECT_FLOAT_EQ(kLayout.together(array.data(), 1).mean, 6);
  EXPECT_FLOAT_EQ(kLayout.together(array.data(), 1).squares, 6);
}

TEST(BatchStatistics, ComputeTheGradientOfANormalizedValue) {
  const std::vector<double> values{0.3, -1.2, 2.5, 0.9};
  const std::vector<double> gradients{0.7, -0.1, 0.4, -0.6};
  constexpr double kEpsilon = 1e-3;
  constexpr double kGamma = 1.7;
  const auto statistics = [&](const std::vector<double>& x) {
    double mean = 0;
    double variance = 0;
    for (const double value : x) mean += value / 4;
    for (const double value : x) variance += (value - mean) * (value - mean) / 4;
    return std::pair(mean, 1 / std::sqrt(variance + kEpsilon));
  };
  const auto loss = [&](const std::vector<double>& x) {
    const auto [mean, inverse] = statistics(x);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      sum += gradients[i] * kGamma * (x[i] - mean) * inverse;
    return sum;
  };
  const auto [mean, inverse] = statistics(values);
  double gradient_sum = 0;
  double product_sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    gradient_sum += gradients[i];
    product_sum += gradients[i] * (values[i] - mean) * inverse;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<double> more = values;
    std::vector<double> less = values;
    more[i] += 1e-5;
    less[i] -= 1e-5;
    const auto normal = static_cast<float>((values[i] - mean) * inverse);
    EXPECT_NEAR(
        input_gradient(static_cast<float>(gradients[i]), normal, static_cast<float>(gradient_sum),
                       static_cast<float>(product_sum), 4, static_cast<float>(kGamma * inverse)),
        (loss(more) - loss(less)) / 2e-5, 1e-5);
  }
}

}  // namespace
}  // namespace lockstep::inline v0::model
