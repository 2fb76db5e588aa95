// What a trainer does about losses that are not finite, damaged records, and data and options that
// make no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "lockstep/strategy/trainer.h"
#include "tests/strategy/training.h"
#include "tests/strategy/watched_source.h"
#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

using allreduce::error_of;
using ::testing::HasSubstr;

TEST(Trainer, SkipsAStepWithoutAFiniteLossOnAllReplicas) {
  const auto source = std::make_shared<WatchedSource>(40);
  source->infinite = 25;  // in step 2 of 4, on the second of two replicas
  const data::Dataset dataset = data::Dataset::from_source(source).batch(10);
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train(2, normalized_network(), dataset, {}, {.epochs = 1});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: step 3 skipped: non-finite loss on rank 0 (replica 1)\n"
            "lockstep: warning: step 3: record 25 has inf in the feature number 1 of 16\n");
  ASSERT_EQ(outcome.steps.size(), 4U);
  EXPECT_TRUE(outcome.steps[2].skipped);
  EXPECT_FALSE(outcome.steps[3].skipped);
  const EpochLogs& epoch = outcome.history.epochs[0];
  EXPECT_EQ(epoch.samples, 40);
  EXPECT_EQ(epoch.skipped_samples, 10);
  EXPECT_EQ(epoch.metrics.samples, 30);
  EXPECT_TRUE(std::isfinite(epoch.metrics.loss_sum));
  for (const float value : outcome.parameters) ASSERT_TRUE(std::isfinite(value));
  for (const float value : outcome.buffers) ASSERT_TRUE(std::isfinite(value));
}

TEST(Trainer, EndsWhereNoStepHasAFiniteLoss) {
  const auto source = std::make_shared<WatchedSource>(1);
  source->infinite = 0;
  ::testing::internal::CaptureStderr();
  const std::string error = error_of([&] {
    train(1, plain_network(), data::Dataset::from_source(source).batch(1), {}, {.epochs = 1000});
  });
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(error,
            "[train] expected finite losses, gradients and parameters; try a lower learning rate, "
            "warm-up or clipping, got 100 skipped steps in a row, the last one (100) for a "
            "non-finite loss on rank 0");
}

TEST(Trainer, GivesTheErrorOfADamagedRecord) {
  const auto source = std::make_shared<WatchedSource>(40);
  source->damaged = 17;
  EXPECT_EQ(error_of([&] {
              train(3, plain_network(), data::Dataset::from_source(source).batch(10), {},
                    {.epochs = 1});
            }),
            "[watched] expected a whole record; record 17 is damaged");
}

TEST(Trainer, WarnsOfAnActivationBeforeTheCrossEntropy) {
  const auto errors_of = [](const model::Network& network) {
    ::testing::internal::CaptureStderr();
    train(1, network, small_data(40).batch(40), {}, {.epochs = 1});
    return ::testing::internal::GetCapturedStderr();
  };
  model::Network network = plain_network();
  EXPECT_EQ(errors_of(network), "");
  network.add(model::Softmax());
  EXPECT_THAT(errors_of(network),
              HasSubstr("[softmax] the network ends with a softmax, and the cross-entropy loss "
                        "applies a softmax to its outputs too: training on both is slow and keeps "
                        "the loss high; remove the layer from the network"));
  model::Network bounded = plain_network();
  bounded.add(model::Sigmoid());
  EXPECT_THAT(errors_of(bounded),
              HasSubstr("[sigmoid] the network ends with a sigmoid, and the cross-entropy loss "
                        "applies a softmax to its outputs: training"));
  model::Network binary({1}, "binary");
  binary.add(model::Dense({.units = 1}));
  binary.add(model::Sigmoid());
  const auto halves = data::Dataset::from_memory(std::vector<float>(4), std::vector<float>(4),
                                                 data::SampleSpec::regression({1}, 1));
  ::testing::internal::CaptureStderr();
  train(1, binary, halves.batch(4), {.loss = model::BinaryCrossentropy{}}, {.epochs = 1});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("applies a sigmoid to its outputs too: training"));
}

TEST(Trainer, RefusesDataThatDoNotFit) {
  const auto error = [](const data::Dataset& dataset, const TrainerOptions& options = {}) {
    return error_of([&] { train(1, plain_network(), dataset, options); });
  };
  EXPECT_EQ(error(data::Dataset::synthetic({4, 4, 1}, kClasses, 10).batch(2)),
            "[10 synthetic samples of 4x4x1] expected samples of shape [16], the input of model "
            "plain, got [4, 4, 1]");
  EXPECT_EQ(
      error(data::Dataset::synthetic({16}, 7, 10).batch(2)),
      "[10 synthetic samples of 16] expected 4 classes, the outputs of model plain, got 7 classes");
  EXPECT_THAT(error(small_data(10)), HasSubstr("[data] expected a batched data set"));
  EXPECT_THAT(error(small_data(10).batch(2), {.loss = model::MeanSquaredError{}}),
              HasSubstr("expected 4 targets per sample"));
}

TEST(Trainer, RefusesValidationDataOfAnotherShape) {
  FitOptions fit;
  fit.validation = data::Dataset::synthetic({15}, kClasses, 10).batch(2);
  EXPECT_THAT(error_of([&] { train(1, plain_network(), small_data().batch(40), {}, fit); }),
              HasSubstr("expected samples of shape [16]"));
}

TEST(Trainer, RefusesOptionsThatMakeNoSense) {
  EXPECT_THAT(
      error_of([] { train(1, plain_network(), small_data().batch(40), {.accumulate = 0}); }),
      HasSubstr("[accumulate] expected at least 1"));
  for (const double norm : {-1.0, std::nan("")})
    EXPECT_THAT(
        error_of([&] { train(1, plain_network(), small_data().batch(40), {.clip_norm = norm}); }),
        HasSubstr("[clip-norm]"));
  EXPECT_THAT(
      error_of([] {
        train(1, plain_network(), small_data().batch(40), {.rate_scaling = RateScaling::linear});
      }),
      HasSubstr("[lr-scaling] expected the global batch size that the learning rate refers to"));
}

}  // namespace
}  // namespace lockstep::strategy
