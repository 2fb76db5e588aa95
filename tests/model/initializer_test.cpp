#include "lockstep/model/tensor/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/model/support/error_of.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<float> drawn(const Initializer& initializer, std::size_t count, std::uint64_t seed = 1,
                         std::string_view name = "dense/kernel") {
  std::vector<float> values(count);
  initialize(initializer, seed, name, values);
  return values;
}

// Central moment of order `order` divided by that of a distribution with deviation `deviation`.
double moment(const std::vector<float>& values, int order, double deviation) {
  double sum = 0;
  for (const float value : values) sum += std::pow(static_cast<double>(value) / deviation, order);
  return sum / static_cast<double>(values.size());
}

constexpr std::size_t kMany = 200'000;
const Initializer kGlorot{.kind = Initializer::Kind::glorot_uniform, .fan_in = 100, .fan_out = 50};
const Initializer kHeUniform{.kind = Initializer::Kind::he_uniform, .fan_in = 24};
const Initializer kHeNormal{.kind = Initializer::Kind::he_normal, .fan_in = 50};

TEST(Initializer, ConstantFillsTheWholeArray) {
  EXPECT_THAT(drawn({.value = 0.25f}, 7), Each(0.25f));
}

TEST(Initializer, UniformKindsFillTheirInterval) {
  for (const auto& [initializer, limit] : {std::pair{kGlorot, 0.2}, std::pair{kHeUniform, 0.5}}) {
    const auto values = drawn(initializer, kMany);
    const auto [low, high] = std::ranges::minmax(values);
    EXPECT_GE(low, -limit);
    EXPECT_LT(high, limit);
    EXPECT_LT(low, -0.999 * limit);
    EXPECT_GT(high, 0.999 * limit);
    // U(-l, l): mean 0, variance l^2 / 3, fourth moment l^4 / 5. Five standard errors.
    EXPECT_NEAR(moment(values, 1, limit), 0, 5 * std::sqrt(1.0 / 3 / kMany));
    EXPECT_NEAR(moment(values, 2, limit), 1.0 / 3, 5 * std::sqrt((1.0 / 5 - 1.0 / 9) / kMany));
  }
}

TEST(Initializer, HeNormalHasTheMomentsOfANormalDistribution) {
  const auto values = drawn(kHeNormal, kMany);
  constexpr double kDeviation = 0.2;  // sqrt(2 / 50)
  EXPECT_NEAR(moment(values, 1, kDeviation), 0, 5 * std::sqrt(1.0 / kMany));
  EXPECT_NEAR(moment(values, 2, kDeviation), 1, 5 * std::sqrt(2.0 / kMany));
  EXPECT_NEAR(moment(values, 3, kDeviation), 0, 5 * std::sqrt(15.0 / kMany));
  EXPECT_NEAR(moment(values, 4, kDeviation), 3, 5 * std::sqrt(96.0 / kMany));
}

TEST(Initializer, OrthogonalColumnsHaveLengthOne) {
  for (const auto& [rows, columns] : {std::pair{40u, 10u}, {7u, 7u}, {1u, 1u}, {96u, 32u}}) {
    const auto values =
        drawn({.kind = Initializer::Kind::orthogonal, .fan_in = static_cast<std::int64_t>(columns)},
              std::size_t{rows} * columns);
    for (std::size_t i = 0; i < columns; ++i)
      for (std::size_t j = 0; j <= i; ++j) {
        double product = 0;
        for (std::size_t r = 0; r < rows; ++r)
          product += static_cast<double>(values[r * columns + i]) *
                     static_cast<double>(values[r * columns + j]);
        EXPECT_NEAR(product, i == j ? 1 : 0, 1e-6) << rows << "x" << columns;
      }
  }
}

TEST(Initializer, OrthogonalMatricesHaveNoPreferredDirection) {
  const auto values = drawn({.kind = Initializer::Kind::orthogonal, .fan_in = 200}, 200 * 200);
  // The elements of such a matrix have mean 0 and variance 1 / rows.
  EXPECT_NEAR(moment(values, 1, 1), 0, 5 * std::sqrt(1.0 / 200) / 200);
  EXPECT_NEAR(moment(values, 3, std::sqrt(1.0 / 200)), 0, 5 * std::sqrt(15.0) / 200);
  EXPECT_NEAR(moment(values, 4, std::sqrt(1.0 / 200)), 3, 5 * std::sqrt(96.0) / 200);
}

TEST(Initializer, NormalHasTheRequestedDeviation) {
  const auto values = drawn({.kind = Initializer::Kind::normal, .value = 0.5f}, kMany);
  EXPECT_NEAR(moment(values, 1, 0.5), 0, 5 * std::sqrt(1.0 / kMany));
  EXPECT_NEAR(moment(values, 2, 0.5), 1, 5 * std::sqrt(2.0 / kMany));
}

TEST(Initializer, NeighborsAreNotCorrelated) {
  const auto values = drawn(kHeNormal, kMany);
  for (std::size_t lag = 1; lag <= 4; ++lag) {
    double product = 0;
    for (std::size_t i = lag; i < values.size(); ++i)
      product += static_cast<double>(values[i]) * static_cast<double>(values[i - lag]) / 0.04;
    EXPECT_NEAR(product / kMany, 0, 5 * std::sqrt(1.0 / kMany)) << "lag " << lag;
  }
}

TEST(Initializer, DependsOnSeedAndNameAlone) {
  const auto values = drawn(kHeNormal, 10, 1, "dense/kernel");
  EXPECT_EQ(drawn(kHeNormal, 10, 1, "dense/kernel"), values);
  EXPECT_NE(drawn(kHeNormal, 10, 2, "dense/kernel"), values);
  EXPECT_NE(drawn(kHeNormal, 10, 1, "dense_1/kernel"), values);
}

TEST(Initializer, FillsSizesThatABlockDoesNotDivide) {
  const auto longest = drawn(kHeNormal, 9);
  for (std::size_t size = 0; size < longest.size(); ++size) {
    const auto values = drawn(kHeNormal, size);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), longest.begin())) << size;
  }
}

TEST(Initializer, RequiresTheFanThatItUses) {
  EXPECT_THROW(drawn({.kind = Initializer::Kind::he_normal}, 1), CheckFailure);
  EXPECT_THROW(drawn({.kind = Initializer::Kind::glorot_uniform, .fan_in = 1}, 1), CheckFailure);
}

TEST(ParseInitializer, AcceptsAllNames) {
  EXPECT_EQ(parse_initializer("glorot_uniform"), Initializer::Kind::glorot_uniform);
  EXPECT_EQ(parse_initializer("he_normal"), Initializer::Kind::he_normal);
  EXPECT_EQ(parse_initializer("he_uniform"), Initializer::Kind::he_uniform);
  EXPECT_EQ(parse_initializer("zeros"), Initializer::Kind::constant);
}

TEST(ParseInitializer, RejectsUnknownNamesWithTheNearest) {
  EXPECT_THAT(input_error_of([] { parse_initializer("he_norm"); }),
              HasSubstr("[initializer] expected glorot_uniform, he_normal, he_uniform or zeros, "
                        "got \"he_norm\" (did you mean he_normal?)"));
}

}  // namespace
}  // namespace lockstep::inline v0::model
