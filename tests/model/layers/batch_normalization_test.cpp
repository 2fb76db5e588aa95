#include "lockstep/model/layers/batch_normalization/batch_normalization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr BatchNormalization::Options kOptions{.momentum = 0.75f, .epsilon = 1e-2f};

struct Statistics {
  double mean = 0;
  double variance = 0;  // over all rows, without Bessel's correction
  double rows = 0;
};

Statistics channel_statistics(const std::vector<float>& values, std::size_t channels,
                              std::size_t channel) {
  Statistics result;
  for (std::size_t i = channel; i < values.size(); i += channels, ++result.rows)
    result.mean += static_cast<double>(values[i]);
  result.mean /= result.rows;
  for (std::size_t i = channel; i < values.size(); i += channels)
    result.variance += std::pow(static_cast<double>(values[i]) - result.mean, 2);
  result.variance /= result.rows;
  return result;
}

struct Normalized {
  std::shared_ptr<Recording> seen = std::make_shared<Recording>();
  Trial trial;

  explicit Normalized(const Shape& input, std::int64_t samples, bool relu = false)
      : trial(network(input, relu), samples) {}

  Network network(const Shape& input, bool relu) const {
    Network result(input);
    result.add(BatchNormalization(kOptions));
    if (relu) result.add(ReLU());
    result.add(Probe(seen));
    return result;
  }
  float gamma(std::size_t channel) { return trial.parameter("batch_normalization/gamma")[channel]; }
  float beta(std::size_t channel) { return trial.parameter("batch_normalization/beta")[channel]; }
};

TEST(BatchNormalization, NormalizesOverBatchAndImageInTraining) {
  Normalized layer({3, 4, 5}, 6);
  layer.trial.train();
  ASSERT_TRUE(layer.seen->training);
  for (std::size_t channel = 0; channel < 5; ++channel) {
    const Statistics before = channel_statistics(layer.trial.features(), 5, channel);
    for (std::size_t i = channel; i < layer.seen->values.size(); i += 5) {
      const double expected = (static_cast<double>(layer.trial.features()[i]) - before.mean) /
                              std::sqrt(before.variance + 1e-2);
      ASSERT_NEAR(layer.seen->values[i],
                  expected * static_cast<double>(layer.gamma(channel)) +
                      static_cast<double>(layer.beta(channel)),
                  1e-5);
    }
  }
}

TEST(BatchNormalization, MovesItsStatisticsWithBesselsCorrection) {
  Normalized layer({2, 2, 3}, 2);
  const std::vector<float> mean(layer.trial.buffer("batch_normalization/moving_mean").begin(),
                                layer.trial.buffer("batch_normalization/moving_mean").end());
  const std::vector<float> variance(
      layer.trial.buffer("batch_normalization/moving_variance").begin(),
      layer.trial.buffer("batch_normalization/moving_variance").end());
  layer.trial.train();
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const Statistics batch = channel_statistics(layer.trial.features(), 3, channel);
    EXPECT_NEAR(layer.trial.buffer("batch_normalization/moving_mean")[channel],
                0.75 * static_cast<double>(mean[channel]) + 0.25 * batch.mean, 1e-6);
    EXPECT_NEAR(layer.trial.buffer("batch_normalization/moving_variance")[channel],
                0.75 * static_cast<double>(variance[channel]) +
                    0.25 * batch.variance * batch.rows / (batch.rows - 1),
                1e-6);
  }
}

TEST(BatchNormalization, UsesMovingStatisticsInInferenceUnchanged) {
  for (const bool relu : {false, true}) {
    Normalized layer({2, 2, 3}, 2, relu);
    const auto mean = layer.trial.buffer("batch_normalization/moving_mean");
    const auto variance = layer.trial.buffer("batch_normalization/moving_variance");
    const std::vector<float> before(mean.begin(), mean.end());
    const std::vector<float> outputs = layer.trial.predict();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t channel = i % 3;
      const float normalized =
          (layer.trial.features()[i] - mean[channel]) / std::sqrt(variance[channel] + 1e-2f);
      const float expected = layer.gamma(channel) * normalized + layer.beta(channel);
      ASSERT_NEAR(outputs[i], relu ? std::max(expected, 0.0f) : expected, 1e-5f)
          << "relu: " << relu;
    }
    EXPECT_THAT(mean, ::testing::ElementsAreArray(before));
  }
}

// Training then computes what inference does, to the bit; the statistics are constants in backward.
TEST(BatchNormalization, UsesMovingStatisticsIfFrozen) {
  const auto seen = std::make_shared<Recording>();
  Network network({3, 2, 4});
  network.add(Shift());
  network.add(BatchNormalization(kOptions));
  network.add(Probe(seen));
  const std::vector<std::string> frozen = {"batch_normalization/*"};
  network.freeze(frozen);
  Trial trial(network, 3);
  const std::vector<float> expected = trial.predict();
  const std::vector<float> before(trial.model().buffers().begin(), trial.model().buffers().end());
  trial.train();
  ASSERT_TRUE(seen->training);
  EXPECT_EQ(seen->values, expected);
  EXPECT_THAT(trial.model().buffers(), ::testing::ElementsAreArray(before));
  expect_gradients_match_differences(network);
}

TEST(BatchNormalization, WorksOnVectors) {
  Normalized layer({4}, 8);
  layer.trial.train();
  for (std::size_t channel = 0; channel < 4; ++channel) {
    const Statistics after = channel_statistics(layer.seen->values, 4, channel);
    EXPECT_NEAR(after.mean, layer.beta(channel), 1e-5);
  }
}

TEST(BatchNormalization, OutputsItsShiftForASingleRow) {
  Normalized layer({3}, 1);
  layer.trial.train();
  for (std::size_t channel = 0; channel < 3; ++channel) {
    EXPECT_NEAR(layer.seen->values[channel], layer.beta(channel), 1e-6f);
    EXPECT_TRUE(std::isfinite(layer.trial.buffer("batch_normalization/moving_variance")[channel]))
        << "Bessel's correction has no meaning here";
  }
}

TEST(BatchNormalization, HasTheGradientsOfItsInputScaleAndShift) {
  for (const Shape& input : {Shape{3, 3, 4}, Shape{5}, Shape{2, 2, 32}}) {
    Network network(input);
    network.add(Shift());
    network.add(BatchNormalization(kOptions));
    expect_gradients_match_differences(network, {.samples = 4});
  }
}

TEST(BatchNormalization, HasTheSameGradientsWithAReLUFused) {
  const auto network = [](bool fused) {
    Network result({3, 3, 4});
    result.add(Shift());
    result.add(BatchNormalization(kOptions));
    if (!fused) result.add(Probe(std::make_shared<Recording>()));
    result.add(ReLU());
    return result;
  };
  Trial fused(network(true), 4);
  Trial apart(network(false), 4);
  EXPECT_NEAR(fused.train().loss_sum, apart.train().loss_sum, 1e-6);
  for (const char* name :
       {"shift/offset", "batch_normalization/gamma", "batch_normalization/beta"}) {
    const auto expected = apart.gradient(name);
    EXPECT_THAT(fused.gradient(name),
                Pointwise(FloatNear(1e-6f), std::vector<float>(expected.begin(), expected.end())))
        << name;
  }
}

TEST(BatchNormalization, TrainsAsTheFirstLayer) {
  Network network({4});
  network.add(BatchNormalization(kOptions));
  expect_gradients_match_differences(network, {.samples = 4});
}

TEST(BatchNormalization, InitiallyIsTheIdentityOnNormalizedInput) {
  Normalized layer({3}, 2);
  layer.trial.model().initialize(1);
  EXPECT_THAT(layer.trial.parameter("batch_normalization/gamma"), Each(1.0f));
  EXPECT_THAT(layer.trial.parameter("batch_normalization/beta"), Each(0.0f));
  EXPECT_THAT(layer.trial.buffer("batch_normalization/moving_mean"), Each(0.0f));
  EXPECT_THAT(layer.trial.buffer("batch_normalization/moving_variance"), Each(1.0f));
  for (const auto& entry : layer.trial.network().parameters().entries())
    EXPECT_FALSE(entry.decay) << entry.name;
}

TEST(BatchNormalization, RefusesOptionsOutsideTheirRange) {
  const auto refusal = [](const BatchNormalization::Options& options) {
    return input_error_of([&] { Network({4}).add(BatchNormalization(options)); });
  };
  EXPECT_EQ(refusal({.momentum = 1.5f}),
            "[layer batch_normalization (batch_normalization)] expected a momentum in [0, 1] and a "
            "positive epsilon, got 1.5 and 0.001");
  EXPECT_THAT(refusal({.epsilon = 0}), HasSubstr("got 0.99 and 0"));
}

}  // namespace
}  // namespace lockstep::inline v0::model
