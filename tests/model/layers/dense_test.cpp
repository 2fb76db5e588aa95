#include "lockstep/model/layers/dense/dense.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::model {
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
};

std::ostream& operator<<(std::ostream& out, const DenseCase& test) { return out << test.name; }
std::string name_of_dense(const ::testing::TestParamInfo<DenseCase>& info) {
  return info.param.name;
}

Network network_of(const DenseCase& c) {
  Network network({c.inputs});
  network.add(Shift());
  network.add(Dense({.units = c.units, .use_bias = c.use_bias}));
  if (c.relu) network.add(ReLU());
  return network;
}

class DenseLayer : public ::testing::TestWithParam<DenseCase> {};

TEST_P(DenseLayer, IsAProductWithItsKernelPlusItsBias) {
  const DenseCase& c = GetParam();
  Trial trial(network_of(c), c.samples);
  std::vector<float> expected;
  for (std::int64_t n = 0; n < c.samples; ++n)
    for (std::int64_t u = 0; u < c.units; ++u) {
      double sum =
          c.use_bias
              ? static_cast<double>(trial.parameter("dense/bias")[static_cast<std::size_t>(u)])
              : 0;
      for (std::int64_t i = 0; i < c.inputs; ++i) {
        const float x = trial.features()[static_cast<std::size_t>(n * c.inputs + i)] +
                        trial.parameter("shift/offset")[static_cast<std::size_t>(i)];
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
                                           DenseCase{"one_of_each", 1, 1, true, false, 1}),
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

TEST(Dense, RefusesWhatItCannotDo) {
  EXPECT_EQ(input_error_of([] { Network({4}).add(Dense({})); }),
            "[layer dense (dense)] expected at least one unit, got 0");
  EXPECT_EQ(input_error_of([] {
              Network({28, 28, 1}).add(Dense({.units = 10}));
            }),
            "[layer dense (dense)] expected an input [features], got [28, 28, 1]; add a flatten "
            "layer before it");
}

}  // namespace
}  // namespace lockstep::model
