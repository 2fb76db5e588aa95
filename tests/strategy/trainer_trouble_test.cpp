// Losses that are not finite, damaged records, and invalid data and options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/train/trainer.h"
#include "tests/strategy/training.h"
#include "tests/strategy/watched_source.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
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

TEST(Trainer, EndsIfNoStepHasAFiniteLoss) {
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

/// Records first, first + 1, …; the weight of those before `first_weighted` is 0.
data::Dataset weighted_data(int first, int records, int first_weighted) {
  std::vector<float> features;
  std::vector<std::int32_t> labels;
  std::vector<float> weights;
  for (int id = first; id < first + records; ++id) {
    std::mt19937 random(static_cast<unsigned>(id));
    for (int k = 0; k < 16; ++k) features.push_back(static_cast<float>(random() % 100) / 50 - 1);
    labels.push_back(id % static_cast<int>(kClasses));
    weights.push_back(id < first_weighted ? 0.0F : 1.0F);
  }
  return data::Dataset::from_memory(
      {std::move(features)}, {std::move(labels)},
      {.inputs = {{.name = "x", .shape = {16}}},
       .targets = {{.name = "y", .type = ElementType::int32, .classes = kClasses}},
       .weighted = true},
      std::move(weights));
}

/// The step has no effect: momentum, decay, bias correction, averages and statistics.
TEST(Trainer, LearnsNothingFromAStepOfWeight0) {
  for (const model::OptimizerOptions& optimizer :
       {model::OptimizerOptions(model::Sgd{.momentum = 0.9F, .weight_decay = 0.1F}),
        model::OptimizerOptions(model::Adam{})})
    for (const int replicas : {1, 2, 3}) {
      const TrainerOptions options{.optimizer = optimizer, .ema = 0.5F};
      FitOptions fit{.epochs = 1};
      // 12 is divisible by all numbers of replicas; otherwise the largest part depends on the step.
      fit.validation = weighted_data(0, 48, 0).batch(12);
      const data::Dataset first = weighted_data(0, 12, 0);
      const data::Dataset rest = weighted_data(24, 24, 0);
      const Outcome expected =
          train(replicas, normalized_network(), first.concatenate(rest).batch(12), options, fit);
      const Outcome outcome = train(
          replicas, normalized_network(),
          first.concatenate(weighted_data(12, 12, 24)).concatenate(rest).batch(12), options, fit);
      EXPECT_EQ(outcome.parameter_hash, expected.parameter_hash)
          << to_string(optimizer) << replicas;
      EXPECT_EQ(outcome.buffers, expected.buffers);
      const EpochLogs& epoch = outcome.history.epochs[0];
      EXPECT_EQ(epoch.validation->loss_sum, expected.history.epochs[0].validation->loss_sum);
      ASSERT_EQ(outcome.steps.size(), 4U);
      EXPECT_FALSE(outcome.steps[1].skipped);
      EXPECT_TRUE(std::isnan(outcome.losses[1]));
      EXPECT_EQ(outcome.losses[2], expected.losses[1]);
      EXPECT_EQ(outcome.history.end.skipped_steps, 0);
      EXPECT_EQ(epoch.metrics.samples, 48);
      EXPECT_EQ(epoch.metrics.weight_sum(), 36);
      EXPECT_EQ(epoch.metrics.loss(), expected.history.epochs[0].metrics.loss());
    }
}

TEST(Trainer, RejectsRecordsThatAllHaveWeight0) {
  const data::Dataset weightless = weighted_data(0, 40, 40).batch(10);
  const std::string expected =
      "expected weights whose sum is above 0, got weight 0 for all 40 samples";
  for (const int replicas : {1, 3}) {
    EXPECT_EQ(error_of([&] { train(replicas, plain_network(), weightless, {}, {.epochs = 2}); }),
              "[epoch 1] " + expected);
    FitOptions fit{.epochs = 1};
    fit.validation = weightless;
    EXPECT_EQ(error_of([&] {
                train(replicas, plain_network(), weighted_data(0, 40, 0).batch(10), {}, fit);
              }),
              "[validation] " + expected);
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network(), {});
    EXPECT_EQ(error_of([&] { trainer.evaluate(weightless); }), "[evaluation] " + expected);
    EXPECT_EQ(trainer.evaluate(weighted_data(0, 40, 35).batch(10)).weight_sum(), 5)
        << "usable afterwards";
  }
}

TEST(Trainer, ThrowsTheErrorOfADamagedRecord) {
  const auto source = std::make_shared<WatchedSource>(40);
  source->damaged = 17;
  EXPECT_EQ(error_of([&] {
              train(3, plain_network(), data::Dataset::from_source(source).batch(10), {},
                    {.epochs = 1});
            }),
            "[watched] expected a whole record; record 17 is damaged; --bad-records skip:N "
            "(Dataset::skip_bad_records) tolerates up to N such records");
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

TEST(Trainer, RejectsDataThatDoNotFit) {
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

TEST(Trainer, RejectsValidationDataOfAnotherShape) {
  FitOptions fit;
  fit.validation = data::Dataset::synthetic({15}, kClasses, 10).batch(2);
  EXPECT_THAT(error_of([&] { train(1, plain_network(), small_data().batch(40), {}, fit); }),
              HasSubstr("expected samples of shape [16]"));
}

TEST(Trainer, RejectsInvalidOptions) {
  const auto error = [](const TrainerOptions& options, const FitOptions& fit = {}) {
    return error_of([&] { train(1, plain_network(), small_data().batch(40), options, fit); });
  };
  EXPECT_EQ(error({.accumulate = 0}), "[trainer] expected accumulate to be at least 1, got 0");
  EXPECT_EQ(error({.clip_norm = -1}), "[trainer] expected clip_norm to be at least 0, got -1");
  EXPECT_EQ(error({.clip_norm = std::nan("")}),
            "[trainer] expected clip_norm to be at least 0, got nan");
  EXPECT_EQ(error({.schedule = {.warmup_steps = -2}}),
            "[trainer] expected warmup_steps to be at least 0, got -2");
  EXPECT_THAT(error({.rate_scaling = RateScaling::linear}),
              HasSubstr("[lr-scaling] expected the global batch size that the learning rate "
                        "refers to"));
  EXPECT_EQ(error({}, {.validate_every = 2}),
            "[fit] expected validation_data with validate_every; it was not given");
  EXPECT_EQ(error({}, {.checkpoint = {.restore_best = true}}),
            "[fit] expected best_metric with restore_best; it was not given");
  EXPECT_EQ(error({}, {.checkpoint = {.keep = 0}}), "[fit] expected keep to be at least 1, got 0");
}

}  // namespace
}  // namespace lockstep::inline v0::train
