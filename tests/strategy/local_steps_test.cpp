// Rounds of local steps: averages of replicas that train alone.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/optimizer/optimizer_options.h"
#include "lockstep/strategy/step/local_steps.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::HasSubstr;

constexpr std::array<float, 7> kFeatures = {0.5F, -1, 2, 1.5F, -0.5F, 3, 1};
constexpr std::array<float, 7> kTargets = {1, 0.25F, -1, 2, 0.75F, 0.5F, -2};

data::Dataset seven_samples(std::array<float, 7> targets = kTargets) {
  return data::Dataset::from_memory(std::vector<float>(kFeatures.begin(), kFeatures.end()),
                                    std::vector<float>(targets.begin(), targets.end()),
                                    data::SampleSpec::regression({1}, 1))
      .batch(7);
}

/// y = w * x.
model::Network one_weight() {
  model::Network network({1}, "one_weight");
  network.add(model::Dense({.units = 1, .use_bias = false}));
  return network;
}

TrainerOptions of_rounds(int steps, float momentum = 0, OuterStep outer = {}) {
  return {.loss = model::MeanSquaredError{},
          .optimizer = model::Sgd{.momentum = momentum},
          .schedule = {.peak = 0.05F},
          .local = {.steps = steps, .outer = outer}};
}

Outcome train_locally(int replicas, model::Network network, const data::Dataset& dataset,
                      const TrainerOptions& options, FitOptions fit) {
  job::Session session(0, nullptr, {.quiet = true});
  LocalStepsStrategy strategy(session,
                              std::vector<device::Device>(static_cast<std::size_t>(replicas)));
  return train(strategy, std::move(network), dataset, options, std::move(fit));
}

/// One replica: a weight and the velocity of its optimizer.
struct Trained {
  double weight = 0;
  double velocity = 0;
};

/// One step on the mean squared error of the samples `begin` .. `end`-1.
void step(Trained& replica, int begin, int end, double momentum) {
  double gradient = 0;
  for (int i = begin; i < end; ++i)
    gradient += 2 * (replica.weight * kFeatures[i] - kTargets[i]) * kFeatures[i] / (end - begin);
  replica.velocity = momentum * replica.velocity + gradient;
  replica.weight -= 0.05 * replica.velocity;
}

/// A round of two replicas with two local steps: samples 0 to 2 in steps of one and two samples,
/// samples 3 to 6 in steps of two. The average is weighted by samples, 3 and 4 of 7.
Trained average_of_round(const Trained& start, double momentum) {
  Trained first = start;
  step(first, 0, 1, momentum);
  step(first, 1, 3, momentum);
  Trained second = start;
  step(second, 3, 5, momentum);
  step(second, 5, 7, momentum);
  return {(3 * first.weight + 4 * second.weight) / 7,
          (3 * first.velocity + 4 * second.velocity) / 7};
}

float initial_weight() {
  job::Session session(0, nullptr, {.quiet = true});
  LocalStepsStrategy strategy(session);
  Trainer trainer(strategy, one_weight(), of_rounds(1));
  return trainer.replicas().arrays(false).parameters[0];
}

TEST(LocalSteps, AverageUnequalPartsByTheirSamples) {
  for (const float momentum : {0.0F, 0.9F}) {
    const Outcome outcome =
        train_locally(2, one_weight(), seven_samples(), of_rounds(2, momentum), {.epochs = 1});
    const Trained expected = average_of_round({initial_weight()}, momentum);
    EXPECT_NEAR(outcome.parameters[0], expected.weight, 1e-6) << momentum;
    EXPECT_EQ(outcome.history.epochs.back().samples, 7);
  }
}

TEST(LocalSteps, MoveTowardsTheAverageWithNesterovMomentum) {
  const Outcome outcome = train_locally(2, one_weight(), seven_samples(),
                                        of_rounds(2, 0, kNesterovOuterStep), {.epochs = 2});
  double weight = initial_weight();
  double velocity = 0;
  for (int round = 0; round < 2; ++round) {
    const Trained average = average_of_round({weight}, 0);
    const double change = weight - average.weight;
    velocity = 0.9 * velocity + change;
    weight -= 0.7 * (change + 0.9 * velocity);
  }
  EXPECT_NEAR(outcome.parameters[0], weight, 1e-6);
}

TEST(LocalSteps, OfOneReplicaAreSteps) {
  const Outcome rounds = train_locally(
      1, dropout_network(), small_data().batch(40),
      {.optimizer = model::AdamW{}, .clip_norm = 0.1, .local = {.steps = 1}}, {.epochs = 2});
  const Outcome steps = train(1, dropout_network(), small_data().batch(40),
                              {.optimizer = model::AdamW{}, .clip_norm = 0.1}, {.epochs = 2});
  for (std::size_t i = 0; i < steps.parameters.size(); ++i)
    EXPECT_NEAR(rounds.parameters[i], steps.parameters[i], 1e-6) << i;
}

TEST(LocalSteps, OfWeightedSamplesAreSteps) {
  const TrainerOptions steps{.class_weights = {1, 3, 0.5F, 0.25F}, .optimizer = model::Adam{}};
  TrainerOptions rounds = steps;
  rounds.local.steps = 1;
  const auto data = small_data().batch(40);
  const Outcome expected = train(1, plain_network(), data, steps, {.epochs = 2});
  const Outcome trained = train_locally(1, plain_network(), data, rounds, {.epochs = 2});
  for (std::size_t i = 0; i < expected.parameters.size(); ++i)
    EXPECT_NEAR(trained.parameters[i], expected.parameters[i], 1e-6) << i;
}

TEST(LocalSteps, ContinueTheUpdatesOfSteps) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 2};
  fit.checkpoint.directory = directory.path();
  const auto data = small_data().batch(40);
  const TrainerOptions steps{.optimizer = model::Adam{}};
  TrainerOptions rounds = steps;
  rounds.local.steps = 2;
  train_locally(1, plain_network(), data, rounds, fit);
  fit.epochs = 3;
  const auto updates = [&](Strategy& strategy, const TrainerOptions& options) {
    Trainer trainer(strategy, plain_network(), options);
    trainer.fit(data, fit);
    return trainer.replicas().updates();
  };
  job::Session session(0, nullptr, {.quiet = true});
  OneDeviceStrategy one(session);
  EXPECT_EQ(updates(one, steps), 2 * 2 * 6 + 6);
  fit.epochs = 4;
  LocalStepsStrategy local(session);
  EXPECT_EQ(updates(local, rounds), 2 * 2 * 6 + 6 + 2 * 6);
  rounds.local.outer = kNesterovOuterStep;
  fit.epochs = 5;
  EXPECT_THAT(error_of([&] { updates(local, rounds); }),
              HasSubstr("expected a checkpoint with momentum of an outer step, got one without"));
}

TEST(LocalSteps, ResumeExactlyAndOnOtherReplicas) {
  const TrainerOptions options{.optimizer = model::Adam{},
                               .schedule = {.peak = 0.01F, .warmup_steps = 3, .total_steps = 10},
                               .ema = 0.9F,
                               .local = {.steps = 4, .outer = kNesterovOuterStep}};
  const auto trained = [&](int replicas, const checkpoint::ScratchDirectory& directory,
                           std::int64_t rounds) {
    FitOptions fit{.epochs = 5, .steps = rounds};
    fit.checkpoint.directory = directory.path();
    return train_locally(replicas, normalized_network(), small_data().shuffle().batch(101), options,
                         fit);
  };
  const checkpoint::ScratchDirectory straight;
  const Outcome expected = trained(3, straight, 0);
  ASSERT_EQ(expected.history.end.steps, 15);
  const checkpoint::ScratchDirectory interrupted;
  trained(3, interrupted, 7);
  EXPECT_EQ(trained(3, interrupted, 0).parameter_hash, expected.parameter_hash);
  const checkpoint::ScratchDirectory moved;
  trained(3, moved, 7);
  EXPECT_EQ(trained(2, moved, 0).history.end.steps, 15);
}

TEST(LocalSteps, AreSkippedTogetherIfOneIsNotFinite) {
  std::array<float, 7> targets = kTargets;
  targets[5] = std::numeric_limits<float>::infinity();  // in the second step of the second replica
  const data::Dataset spoilt = seven_samples(targets);
  const auto recorder = std::make_shared<StepRecorder>();
  job::Session session(0, nullptr, {.quiet = true});
  LocalStepsStrategy strategy(session, std::vector<device::Device>(2));
  Trainer trainer(strategy, one_weight(), of_rounds(2, 0.9F));
  const std::uint64_t before = trainer.parameter_hash();
  EXPECT_THROW(trainer.fit(spoilt, {.epochs = 1, .callbacks = {recorder}}), Error);
  EXPECT_EQ(trainer.parameter_hash(), before);
  EXPECT_EQ(trainer.replicas().arrays(true).slots[0].values[0], 0.0F);
  ASSERT_EQ(recorder->steps.size(), 1U);
  EXPECT_TRUE(recorder->steps[0].skipped);
}

TEST(LocalSteps, RefuseOptionsOfOtherStrategies) {
  struct Row {
    std::function<void(TrainerOptions&)> change;
    std::string message;
  };
  const Row rows[] = {
      {[](TrainerOptions& o) { o.accumulate = 3; },
       "[accumulate] expected 1 with the strategy local-steps, got 3"},
      {[](TrainerOptions& o) { o.normalization = parse_normalization_scope("sync"); },
       "[bn] expected local with the strategy local-steps, got sync"},
      {[](TrainerOptions& o) { o.compute.precision = model::Precision::float16; },
       "[loss-scale] expected no loss scale, and float32 or bfloat16 with the strategy "
       "local-steps, "
       "got auto in float16"},
      {[](TrainerOptions& o) { o.local.outer.momentum = 1; },
       "[outer-step] expected a rate above 0 and a momentum from 0 to below 1 with the strategy "
       "local-steps, got nesterov:lr=1,momentum=1"},
      {[](TrainerOptions& o) { o.local.steps = 0; },
       "[trainer] expected local_steps to be at least 1, got 0"}};
  job::Session session(0, nullptr, {.quiet = true});
  for (const Row& row : rows) {
    LocalStepsStrategy strategy(session);
    TrainerOptions options = of_rounds(2);
    row.change(options);
    EXPECT_EQ(error_of([&] { const Trainer trainer(strategy, one_weight(), options); }),
              row.message);
  }
  OneDeviceStrategy other(session);
  EXPECT_EQ(error_of([&] { const Trainer trainer(other, one_weight(), of_rounds(2)); }),
            "[local-steps] expected the strategy local-steps, got one-device");
}

TEST(LocalSteps, SayWhatTheyDoNotPromise) {
  job::Session session(0, nullptr, {.quiet = true});
  const LocalStepsStrategy strategy(session);
  EXPECT_EQ(strategy.caveat(strategy.adapted({})),
            "each step is a round of 20 local steps, after which the replicas average parameters "
            "and optimizer: other numbers of replicas give another result");
  EXPECT_THAT(strategy.caveat(of_rounds(3, 0, kNesterovOuterStep)),
              HasSubstr("(nesterov:lr=0.7,momentum=0.9)"));
}

TEST(OuterStep, IsParsed) {
  EXPECT_EQ(parse_outer_step("average"), OuterStep{});
  EXPECT_EQ(parse_outer_step("nesterov"), kNesterovOuterStep);
  const OuterStep step = parse_outer_step("nesterov:lr=1,momentum=0.5");
  EXPECT_EQ(parse_outer_step(to_string(step)), step);
  EXPECT_EQ(error_of([] { parse_outer_step("mean"); }),
            "[outer-step] expected average or nesterov, got \"mean\"");
  EXPECT_EQ(error_of([] { parse_outer_step("nesterov:momentum=1"); }),
            "[outer-step] expected momentum to be a number from 0 to 0.9999998807907104, got "
            "\"momentum=1\"");
  EXPECT_EQ(error_of([] { parse_outer_step("average:lr=2"); }),
            "[outer-step] expected average without settings, got \"lr\"");
}

}  // namespace
}  // namespace lockstep::inline v0::train
