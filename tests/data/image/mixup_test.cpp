#include "lockstep/data/pipeline/mixup.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <vector>

#include "tests/data/image/encode.h"
#include "tests/data/support.h"

namespace lockstep::inline v0::data {
namespace {

TEST(ChooseMixup, UsesEveryRecordAsPartnerOnce) {
  std::set<std::int64_t> partners;
  int others = 0;
  for (std::int64_t record = 0; record < 1000; ++record) {
    const Mixup mixup = choose_mixup({5, 1, record}, 1000, 0.2);
    partners.insert(mixup.partner);
    others += mixup.partner != record ? 1 : 0;
    EXPECT_EQ(mixup.partner, choose_mixup({5, 1, record}, 1000, 0.2).partner);
  }
  EXPECT_EQ(partners.size(), 1000u);
  EXPECT_GT(others, 980);
  EXPECT_EQ(*partners.begin(), 0);
  EXPECT_EQ(*partners.rbegin(), 999);
}

/// Mean and variance of Beta(alpha, alpha) are 1/2 and 1 / (4 (2 alpha + 1)).
TEST(ChooseMixup, DrawsWeightsOfTheBetaDistribution) {
  constexpr int kDraws = 20000;
  for (const double alpha : {0.01, 0.2, 1.0, 4.0}) {
    double mean = 0;
    double square = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double weight = choose_mixup({5, 1, i}, kDraws, alpha).weight;
      ASSERT_GE(weight, 0);
      ASSERT_LE(weight, 1);
      mean += weight / kDraws;
      square += weight * weight / kDraws;
    }
    EXPECT_NEAR(mean, 0.5, 0.015) << alpha;
    EXPECT_NEAR(square - mean * mean, 1 / (4 * (2 * alpha + 1)), 0.006) << alpha;
  }
}

/// Nearly all weight is on one side, with equal probability.
TEST(ChooseMixup, TerminatesForTheSmallestAlpha) {
  for (const double alpha : {1e-3, 1e-10, 1e-300, std::numeric_limits<double>::denorm_min()}) {
    int whole = 0;
    for (int i = 0; i < 1000; ++i) {
      const float weight = choose_mixup({5, 1, i}, 1000, alpha).weight;
      ASSERT_TRUE(alpha > 1e-5 || weight == 0 || weight == 1) << weight;
      whole += weight > 0.5f ? 1 : 0;
    }
    EXPECT_NEAR(whole, 500, 60) << alpha;
  }
}

TEST(ChooseMixup, RefusesOtherAlphas) {
  EXPECT_EQ(input_error_of([] { choose_mixup({}, 10, 0); }),
            "[mixup] expected an alpha above 0 and up to 4, got 0");
  EXPECT_EQ(input_error_of([] { choose_mixup({}, 10, 5); }),
            "[mixup] expected an alpha above 0 and up to 4, got 5");
}

TEST(Mix, WeighsBothSides) {
  Bytes bytes = {0, 100, 255};
  mix(bytes, Bytes{200, 100, 0}, 0.25f);
  EXPECT_EQ(bytes, (Bytes{150, 100, 64}));
  std::vector<float> floats = {0, 1, -2};
  mix(floats, std::vector<float>{4, 1, 2}, 0.75f);
  EXPECT_EQ(floats, (std::vector<float>{1, 1, -1}));
  mix(floats, std::vector<float>{9, 9, 9}, 1.0f);
  EXPECT_EQ(floats, (std::vector<float>{1, 1, -1}));
}

}  // namespace
}  // namespace lockstep::inline v0::data
