#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
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
TEST(LayerNormalizationLayer, MatchesPyTorch) {
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

// x / sqrt(mean(x^2) + epsilon) * gamma, and its gradients from those of the output, in double.
TEST(RMSNormalizationLayer, DividesByTheRootOfTheMeanSquare) {
  for (const std::int64_t samples : {1, 2, 70}) {  // more rows than are summed in float32
    constexpr std::size_t kWidth = 6;
    Network network({kWidth});
    network.add(Shift());
    network.add(RMSNormalization({.epsilon = 0.25f}));
    Trial trial(network, samples);
    std::ranges::fill(trial.parameter("shift/offset"), 0.0f);
    const auto gamma = trial.parameter("rms_normalization/gamma");
    const std::vector<float> outputs = trial.predict();
    std::vector<double> expected(outputs.size());
    std::vector<double> gamma_gradient(kWidth);
    std::vector<double> offset_gradient(kWidth);
    for (std::size_t begin = 0; begin < expected.size(); begin += kWidth) {
      std::vector<double> x(kWidth);
      double squares = 0;
      for (std::size_t i = 0; i < kWidth; ++i) {
        x[i] = static_cast<double>(trial.features()[begin + i]);
        squares += x[i] * x[i];
      }
      const double inverse = 1 / std::sqrt(squares / kWidth + 0.25);
      std::vector<double> scaled(kWidth);  // the gradient times gamma
      double slope = 0;
      for (std::size_t i = 0; i < kWidth; ++i) {
        const auto scale = static_cast<double>(gamma[i]);
        expected[begin + i] = x[i] * inverse * scale;
        const double difference =
            expected[begin + i] - static_cast<double>(trial.targets()[begin + i]);
        const double gradient = 2 * difference / static_cast<double>(expected.size());
        gamma_gradient[i] += gradient * x[i] * inverse;
        scaled[i] = gradient * scale;
        slope += scaled[i] * x[i] * inverse / kWidth;
      }
      for (std::size_t i = 0; i < kWidth; ++i)
        offset_gradient[i] += (scaled[i] - x[i] * inverse * slope) * inverse;
    }
    const auto rounded = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    EXPECT_THAT(outputs, Pointwise(FloatNear(1e-6f), rounded(expected)));
    trial.train();
    EXPECT_THAT(trial.gradient("rms_normalization/gamma"),
                Pointwise(FloatNear(1e-6f), rounded(gamma_gradient)));
    EXPECT_THAT(trial.gradient("shift/offset"),
                Pointwise(FloatNear(1e-6f), rounded(offset_gradient)));
  }
}

TEST(RMSNormalizationLayer, HasTheGradientsOfItsInputAndParameters) {
  Network network({2, 3, 5});
  network.add(Shift());
  network.add(RMSNormalization());
  expect_gradients_match_differences(network);
  const std::vector<std::string> patterns = {"rms_normalization/*"};
  network.freeze(patterns);
  expect_gradients_match_differences(network);
}

TEST(RMSNormalizationLayer, HasNoShift) {
  Network network({2, 3});
  network.add(RMSNormalization());
  EXPECT_EQ(network.output_shape(), Shape({2, 3}));
  ASSERT_EQ(network.parameters().entries().size(), 1U);
  EXPECT_EQ(network.parameters().entries()[0].name, "rms_normalization/gamma");
  EXPECT_FALSE(network.parameters().entries()[0].decay);
  EXPECT_EQ(input_error_of([] { Network({4}).add(RMSNormalization({.epsilon = -1})); }),
            "[layer rms_normalization (rms_normalization)] expected a positive epsilon, got -1");
}

// Rows of several blocks, whose sums are added in double.
TEST(LayerNormalizationLayer, SumsTheGradientsOfManyRows) {
  constexpr std::int64_t kRows = 150;
  Network network({kRows, 4});
  network.add(LayerNormalization());
  Trial trial(network, 3);
  trial.train();
  const std::vector<float> outputs = trial.predict();
  const auto gamma = trial.parameter("layer_normalization/gamma");
  const auto beta = trial.parameter("layer_normalization/beta");
  std::vector<double> gamma_gradient(4);
  std::vector<double> beta_gradient(4);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const auto output = static_cast<double>(outputs[i]);
    const double gradient = 2 * (output - static_cast<double>(trial.targets()[i])) /
                            static_cast<double>(outputs.size());
    beta_gradient[i % 4] += gradient;
    gamma_gradient[i % 4] +=
        gradient * (output - static_cast<double>(beta[i % 4])) / static_cast<double>(gamma[i % 4]);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(trial.gradient("layer_normalization/gamma")[i], gamma_gradient[i], 2e-5);
    EXPECT_NEAR(trial.gradient("layer_normalization/beta")[i], beta_gradient[i], 1e-6);
  }
}

TEST(LayerNormalizationLayer, HasTheGradientsOfItsInputAndParameters) {
  expect_gradients_match_differences(shifted_and_normalized({9}));
  expect_gradients_match_differences(shifted_and_normalized({2, 3, 5}));
}

TEST(LayerNormalizationLayer, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Network centered({8});
  centered.add(LayerNormalization());
  Network scaled({8});
  scaled.add(RMSNormalization());
  for (const Network& network : {centered, scaled}) {
    Trial exact(network, 3);
    Trial rounded(network, 3, 1, Precision::bfloat16);
    EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.03f), exact.predict()));
  }
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
}  // namespace lockstep::inline v0::model
