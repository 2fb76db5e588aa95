#include "lockstep/model/cpu/lanes.h"

#include <gtest/gtest.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "lockstep/base/float16.h"

namespace lockstep::inline v0::model::cpu {
namespace {

using LaneArray = std::array<float, kLanes>;

LaneArray elements_of(const Lanes& lanes) {
  LaneArray result;
  store_lanes(lanes, result.data());
  return result;
}

float exp_of_one(float x) { return elements_of(exp_of(lanes_of(x)))[0]; }

TEST(Lanes, ExponentialsAreAccurateToAboutOneUlp) {
  constexpr std::int64_t kCount = 2'000'000;
  constexpr double kFirst = -87.33;
  constexpr double kLast = 88.72;
  for (std::int64_t k = 0; k < kCount; k += kLanes) {
    LaneArray x;
    for (std::int64_t i = 0; i < kLanes; ++i)
      x[i] = static_cast<float>(kFirst + (kLast - kFirst) * static_cast<double>(k + i) / kCount);
    const LaneArray values = elements_of(exp_of(load_lanes(x.data())));
    for (std::int64_t i = 0; i < kLanes; ++i) {
      const double expected = std::exp(static_cast<double>(x[i]));
      const auto rounded = static_cast<float>(expected);
      const float unit = std::nextafter(rounded, std::numeric_limits<float>::infinity()) - rounded;
      ASSERT_NEAR(values[i], expected, 1.2 * static_cast<double>(unit)) << x[i];
    }
  }
}

TEST(Lanes, ExponentialsOutsideTheNormalNumbersAreZeroOrInfinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_of_one(0), 1);
  EXPECT_EQ(exp_of_one(-0.0f), 1);
  for (const float x : {-88.0f, -1e30f, std::numeric_limits<float>::lowest(), -kInfinity})
    EXPECT_EQ(exp_of_one(x), 0) << x;
  for (const float x : {88.8f, 1e30f, kInfinity}) EXPECT_EQ(exp_of_one(x), kInfinity) << x;
  EXPECT_TRUE(std::isnan(exp_of_one(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Lanes, ConvertBfloat16LikeSpans) {
  std::mt19937 random(1);
  for (int k = 0; k < 20'000; ++k) {
    LaneArray values;
    for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    values[0] = k == 0 ? std::numeric_limits<float>::quiet_NaN() : values[0];
    std::array<BFloat16, kLanes> expected;
    narrow(values, expected);
    std::array<Eigen::bfloat16, kLanes> rounded;
    store_lanes(load_lanes(values.data()), rounded.data());
    const LaneArray wide = elements_of(load_lanes(rounded.data()));
    for (std::int64_t i = 0; i < kLanes; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint16_t>(rounded[i]), expected[i].bits) << values[i];
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::uint32_t{expected[i].bits} << 16);
    }
  }
}

TEST(Lanes, AreTransposed) {
  Lanes rows[kLanes];
  for (std::int64_t i = 0; i < kLanes; ++i)
    for (std::int64_t j = 0; j < kLanes; ++j) rows[i][j] = static_cast<float>(100 * i + j);
  transpose_lanes(rows);
  for (std::int64_t i = 0; i < kLanes; ++i)
    for (std::int64_t j = 0; j < kLanes; ++j)
      EXPECT_EQ(rows[i][j], static_cast<float>(100 * j + i)) << i << " " << j;
}

template <std::size_t kRows>
void expect_sums_and_maxima() {
  Lanes rows[kRows];
  std::array<float, kRows> sums{};
  std::array<float, kRows> maxima{};
  for (std::size_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kLanes; ++j) {
      const auto value = static_cast<float>((7 * static_cast<std::int64_t>(i) + 5 * j) % 23 - 11);
      rows[i][j] = value;
      sums[i] += value;
      maxima[i] = j == 0 ? value : std::max(maxima[i], value);
    }
  Lanes copies[kRows];
  std::copy(std::begin(rows), std::end(rows), copies);
  std::array<float, kRows> results;
  sum_lanes(rows, results.data());
  EXPECT_EQ(results, sums);
  largest_lanes(copies, results.data());
  EXPECT_EQ(results, maxima);
}

TEST(Lanes, ReduceSeveralRows) {
  expect_sums_and_maxima<1>();
  expect_sums_and_maxima<2>();
  expect_sums_and_maxima<kLanes>();
}

TEST(Lanes, AreSelectedByTheBitsOfAComparison) {
  constexpr unsigned kSets = 1U << kLanes;
  for (unsigned set = 0; set < kSets; ++set) {
    LaneArray x;
    LaneArray expected;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool is_chosen = (set >> i & 1) != 0;
      x[i] = (is_chosen ? 1.0f : -1.0f) * static_cast<float>(i + 1);
      expected[i] = is_chosen ? x[i] : 0;
    }
    const Lanes lanes = load_lanes(x.data());
    ASSERT_EQ(lane_bits(lanes > 0), set);
    ASSERT_EQ(elements_of(lanes_where(lane_bits(lanes > 0), lanes)), expected) << set;
  }
  const Lanes nan = lanes_of(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(lane_bits(nan > 0), 0);
  EXPECT_TRUE(std::isnan(elements_of(lanes_where(1, nan))[0]));
}

}  // namespace
}  // namespace lockstep::inline v0::model::cpu
