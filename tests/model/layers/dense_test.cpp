#include "lockstep/model/layers/dense/dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

struct DenseCase {
  const char* name;
  std::int64_t inputs;
  std::int64_t units;
  bool use_bias;
  bool relu;
  std::int64_t samples;
  Shape positions = {};  // the axes before the last one
};

std::ostream& operator<<(std::ostream& out, const DenseCase& test) { return out << test.name; }
std::string name_of_dense(const ::testing::TestParamInfo<DenseCase>& info) {
  return info.param.name;
}

Network network_of(const DenseCase& c) {
  Shape input = c.positions;
  input.push_back(c.inputs);
  Network network(input);
  network.add(Shift());
  network.add(Dense({.units = c.units, .use_bias = c.use_bias}));
  if (c.relu) network.add(ReLU());
  return network;
}

class DenseLayer : public ::testing::TestWithParam<DenseCase> {};

TEST_P(DenseLayer, IsAProductWithItsKernelPlusItsBias) {
  const DenseCase& c = GetParam();
  Trial trial(network_of(c), c.samples);
  const std::int64_t positions = element_count(c.positions);
  Shape output = c.positions;
  output.push_back(c.units);
  EXPECT_EQ(trial.network().output_shape(), output);
  std::vector<float> expected;
  for (std::int64_t n = 0; n < c.samples * positions; ++n)
    for (std::int64_t u = 0; u < c.units; ++u) {
      double sum =
          c.use_bias
              ? static_cast<double>(trial.parameter("dense/bias")[static_cast<std::size_t>(u)])
              : 0;
      for (std::int64_t i = 0; i < c.inputs; ++i) {
        const float x =
            trial.features()[static_cast<std::size_t>(n * c.inputs + i)] +
            trial.parameter("shift/offset")[static_cast<std::size_t>(n % positions * c.inputs + i)];
        sum += static_cast<double>(x) *
               static_cast<double>(
                   trial.parameter("dense/kernel")[static_cast<std::size_t>(u * c.inputs + i)]);
      }
      expected.push_back(static_cast<float>(c.relu ? std::max(sum, 0.0) : sum));
    }
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(1e-5f), expected));
}

TEST_P(DenseLayer, HasTheGradientsOfItsInputKernelAndBias) {
  const DenseCase& c = GetParam();
  expect_gradients_match_differences(network_of(c),
                                     {.samples = c.samples, .step = c.relu ? 1e-3f : 4e-3f});
}

INSTANTIATE_TEST_SUITE_P(Kinds, DenseLayer,
                         ::testing::Values(DenseCase{"plain", 5, 3, true, false, 4},
                                           DenseCase{"without_bias", 5, 3, false, false, 4},
                                           DenseCase{"whole_vectors", 32, 16, true, false, 8},
                                           DenseCase{"relu", 7, 33, true, true, 3},
                                           DenseCase{"relu_without_bias", 16, 10, false, true, 5},
                                           DenseCase{"one_of_each", 1, 1, true, false, 1},
                                           DenseCase{"rows", 5, 3, true, true, 2, {4}},
                                           DenseCase{"pixels", 3, 8, true, false, 3, {2, 3}},
                                           DenseCase{
                                               "rows_without_bias", 4, 6, false, false, 2, {3}}),
                         name_of_dense);

TEST(Dense, DeclaresItsParameters) {
  Network network({6});
  network.add(Dense({.units = 4, .initializer = Initializer::Kind::he_uniform}));
  const ParameterInfo& kernel = *network.parameters().find("dense/kernel");
  EXPECT_EQ(kernel.shape, Shape({4, 6}));
  EXPECT_TRUE(kernel.decay);
  EXPECT_EQ(kernel.initializer.kind, Initializer::Kind::he_uniform);
  EXPECT_EQ(kernel.initializer.fan_in, 6);
  EXPECT_EQ(kernel.initializer.fan_out, 4);
  EXPECT_FALSE(network.parameters().find("dense/bias")->decay);
}

TEST(Dense, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Network network({3, 16});
  network.add(Dense({.units = 8}));
  Trial exact(network, 2);
  Trial rounded(network, 2, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.05f), exact.predict()));
}

TEST(Dense, RefusesInvalidOptions) {
  EXPECT_EQ(input_error_of([] { Network({4}).add(Dense({})); }),
            "[layer dense (dense)] expected at least one unit, got 0");
}

}  // namespace
}  // namespace lockstep::inline v0::model
