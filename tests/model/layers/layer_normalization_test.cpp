#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

Network shifted_and_normalized(Shape shape) {
  Network network(std::move(shape));
  network.add(Shift());
  network.add(LayerNormalization());
  return network;
}

// Reference, PyTorch 2.15 in float64:
//   x = tensor([[1, 2, 4, -3], [0.5, -1, 0.25, 2]]); t = tensor([[1, 0, 0, 1], [0, -1, 1, 0]])
//   y = nn.functional.layer_norm(x + offset, (4,), gamma, beta, 1e-3)
//   ((y - t) ** 2).mean().backward(); print(y, gamma.grad, beta.grad, offset.grad)
TEST(LayerNormalizationLayer, IsThatOfPyTorch) {
  Trial trial(shifted_and_normalized({4}), 2);
  trial.features() = {1, 2, 4, -3, 0.5f, -1, 0.25f, 2};
  trial.targets() = {1, 0, 0, 1, 0, -1, 1, 0};
  const auto set = [&](std::string_view name, const std::vector<float>& values) {
    std::ranges::copy(values, trial.parameter(name).begin());
  };
  set("shift/offset", {0, 0, 0, 0});
  set("layer_normalization/gamma", {1, -0.5f, 2, 0.25f});
  set("layer_normalization/beta", {0, 1, -1, 0.5f});
  EXPECT_THAT(trial.predict(),
              Pointwise(FloatNear(2e-6f), {0.0f, 0.803899f, 1.353213f, 0.107798f, 0.058595f,
                                           1.673846f, -1.351572f, 0.86622f}));
  trial.train();
  const auto expect = [&](std::string_view name, const std::vector<float>& values) {
    EXPECT_THAT(trial.gradient(name), Pointwise(FloatNear(2e-6f), values)) << name;
  };
  expect("layer_normalization/gamma", {0.000858f, -0.822057f, 0.501393f, 0.667151f});
  expect("layer_normalization/beta", {-0.235351f, 0.869436f, -0.24959f, -0.006495f});
  expect("shift/offset", {0.216846f, 0.158955f, -0.592685f, 0.216884f});
}

TEST(LayerNormalizationLayer, HasTheGradientsOfItsInputAndParameters) {
  expect_gradients_match_differences(shifted_and_normalized({9}));
  expect_gradients_match_differences(shifted_and_normalized({2, 3, 5}));
}

TEST(LayerNormalizationLayer, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Network network({8});
  network.add(LayerNormalization());
  Trial exact(network, 3);
  Trial rounded(network, 3, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.03f), exact.predict()));
}

TEST(LayerNormalizationLayer, StartsAsAPlainNormalizationAndChecksItsOption) {
  Network network({2, 3});
  network.add(LayerNormalization());
  EXPECT_EQ(network.output_shape(), Shape({2, 3}));
  EXPECT_EQ(network.parameters().find("layer_normalization/gamma")->initializer.value, 1);
  EXPECT_FALSE(network.parameters().find("layer_normalization/gamma")->decay);
  EXPECT_EQ(network.parameters().find("layer_normalization/beta")->shape, Shape({3}));
  EXPECT_EQ(input_error_of([] { Network({4}).add(LayerNormalization({.epsilon = 0})); }),
            "[layer layer_normalization (layer_normalization)] expected a positive epsilon, got 0");
}

}  // namespace
}  // namespace lockstep::model
