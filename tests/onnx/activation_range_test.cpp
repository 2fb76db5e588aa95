#include "lockstep/onnx/export/activation_range.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

using ::testing::HasSubstr;

ActivationRange range_of(const std::vector<float>& values, Calibration calibration) {
  ActivationHistogram histogram;
  EXPECT_TRUE(histogram.add(values));
  return histogram.range(calibration);
}

TEST(ActivationRange, MinMaxIncludesAllValuesAndZero) {
  EXPECT_EQ(range_of({1, 2.5f}, Calibration::min_max), (ActivationRange{0, 2.5f}));
  EXPECT_EQ(range_of({-3, -1}, Calibration::min_max), (ActivationRange{-3, 0}));
  EXPECT_EQ(range_of({-3, 0, 7}, Calibration::min_max), (ActivationRange{-3, 7}));
}

TEST(ActivationRange, IsZeroForZeros) {
  for (const auto calibration :
       {Calibration::min_max, Calibration::percentile, Calibration::entropy})
    EXPECT_EQ(range_of({0, -0.0f, 0}, calibration), ActivationRange());
}

TEST(ActivationRange, DoesNotDependOnTheOrderOfValues) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = normal(random) * std::exp2(static_cast<float>(i % 13) - 6);
  for (const auto calibration : {Calibration::percentile, Calibration::entropy}) {
    ActivationHistogram forward;
    for (const float value : values) EXPECT_TRUE(forward.add({&value, 1}));
    ActivationHistogram backward;
    for (std::size_t i = values.size(); i-- > 0;) EXPECT_TRUE(backward.add({&values[i], 1}));
    EXPECT_EQ(forward.range(calibration), backward.range(calibration));
    EXPECT_EQ(forward.range(calibration), range_of(values, calibration));
  }
}

TEST(ActivationRange, PercentileExcludesExtremeValues) {
  std::vector<float> values(100'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000) / 1000;
  for (std::size_t i = 0; i < 8; ++i) values[i] = 100;  // 10 may be excluded
  EXPECT_EQ(range_of(values, Calibration::percentile), (ActivationRange{0, 1}));
  for (std::size_t i = 8; i < 16; ++i) values[i] = -100;
  EXPECT_EQ(range_of(values, Calibration::percentile), (ActivationRange{0, 1}));
  for (std::size_t i = 16; i < 24; ++i) values[i] = 100;
  EXPECT_EQ(range_of(values, Calibration::percentile).high, 100);
}

TEST(ActivationRange, EntropyClampsOutliers) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(50'000);
  for (float& value : values) value = normal(random);
  values.front() = 60;
  const ActivationRange both = range_of(values, Calibration::entropy);
  EXPECT_GT(both.high, 2.5f);
  EXPECT_LT(both.high, 10);
  EXPECT_LT(both.low, -2.5f);
  for (float& value : values) value = std::max(value, 0.0f);  // half of them are 0
  const ActivationRange positive = range_of(values, Calibration::entropy);
  EXPECT_EQ(positive.low, 0);
  EXPECT_GT(positive.high, 2.5f);
  EXPECT_LT(positive.high, 20);
}

TEST(ActivationRange, EntropyKeepsExactlyRepresentableValues) {
  std::vector<float> values;
  for (int i = 0; i < 4096; ++i) values.push_back(static_cast<float>(i % 256) / 256);
  EXPECT_GT(range_of(values, Calibration::entropy).high, 0.99f);
}

TEST(ActivationRange, RejectsNonFiniteValues) {
  ActivationHistogram histogram;
  EXPECT_TRUE(histogram.add(std::vector<float>{1, 2}));
  EXPECT_FALSE(histogram.add(std::vector<float>{5, std::numeric_limits<float>::quiet_NaN()}));
  EXPECT_FALSE(histogram.add(std::vector<float>{-std::numeric_limits<float>::infinity()}));
  EXPECT_EQ(histogram.range(Calibration::min_max), (ActivationRange{0, 2}));
}

TEST(ActivationRange, HandlesTheLargestAndTheSmallestNumbers) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  for (const auto calibration :
       {Calibration::min_max, Calibration::percentile, Calibration::entropy}) {
    const ActivationRange range = range_of({kSmallest, kLargest, -kLargest}, calibration);
    EXPECT_TRUE(std::isfinite(range.low) && std::isfinite(range.high));
    EXPECT_TRUE(std::isfinite(rounding_to_uint8(range).scale));
    EXPECT_EQ(rounding_to_uint8(range_of({kSmallest}, calibration)).scale, 1);
  }
}

TEST(RoundingToUint8, HasAnIntegerForZeroAndForTheEnds) {
  const model::FakeQuantizeFunction rounding = rounding_to_uint8({.low = -1, .high = 3});
  EXPECT_EQ(rounding.zero_point, 64);
  EXPECT_EQ(rounding.dtype, model::Int8Type::uint8);
  EXPECT_EQ(rounding.forward(0), 0);
  EXPECT_NEAR(rounding.forward(-1), -1, rounding.scale);
  EXPECT_NEAR(rounding.forward(9), 3, rounding.scale);
  EXPECT_EQ(rounding_to_uint8({.low = 0, .high = 255}).forward(200), 200);
  EXPECT_EQ(rounding_to_uint8({.low = 0, .high = 255}).zero_point, 0);
  EXPECT_EQ(rounding_to_uint8({.low = -255, .high = 0}).zero_point, 255);
  EXPECT_EQ(rounding_to_uint8({}).scale, 1);
}

TEST(Calibration, HasNames) {
  for (const char* const name : {"min-max", "percentile", "entropy"})
    EXPECT_EQ(kNamesOf<Calibration>.name(kNamesOf<Calibration>.parse("calibration", name)), name);
  try {
    kNamesOf<Calibration>.parse("calibration", "minmax");
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[calibration] expected min-max, percentile or entropy, "
                                        "got \"minmax\" (did you mean min-max?)"));
  }
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
