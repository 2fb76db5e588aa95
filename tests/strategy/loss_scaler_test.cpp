#include "lockstep/strategy/step/loss_scaler.h"

#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/train/callbacks/json_events.h"
#include "lockstep/train/trainer.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/callbacks/captured_file.h"
#include "tests/strategy/training.h"
#include "tests/strategy/watched_source.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ScalingKind = LossScaling::Kind;

TEST(LossScaling, IsParsed) {
  EXPECT_FALSE(parse_loss_scaling("auto"));
  EXPECT_EQ(parse_loss_scaling("none")->kind, ScalingKind::none);
  EXPECT_EQ(parse_loss_scaling("dynamic")->kind, ScalingKind::dynamic);
  EXPECT_EQ(parse_loss_scaling("dynamic")->scale, 65536);
  EXPECT_EQ(parse_loss_scaling("0.5")->kind, ScalingKind::fixed);
  EXPECT_EQ(parse_loss_scaling("0.5")->scale, 0.5F);
  for (const char* text : {"", "0", "-1", "nan", "inf", "1e60", "12x", "static"})
    EXPECT_EQ(
        error_of([&] { parse_loss_scaling(text); }),
        fmt::format("[loss-scale] expected auto, none, dynamic or a number above 0, got \"{}\"",
                    text));
}

TEST(LossScaling, IsDynamicForFloat16ByDefault) {
  EXPECT_EQ(loss_scaling_for({}, model::Precision::float16).kind, ScalingKind::dynamic);
  EXPECT_EQ(loss_scaling_for({}, model::Precision::bfloat16).kind, ScalingKind::none);
  EXPECT_EQ(loss_scaling_for({}, model::Precision::float32).kind, ScalingKind::none);
  EXPECT_EQ(loss_scaling_for(LossScaling{}, model::Precision::float16).kind, ScalingKind::none);
}

TEST(LossScaler, HalvesImmediatelyAndDoublesAfterManyGoodSteps) {
  LossScaler scaler(kDynamicLossScaling);
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_TRUE(scaler.update(false));
  EXPECT_EQ(scaler.scale(), 32768);
  for (int step = 0; step < 1999; ++step) EXPECT_FALSE(scaler.update(true));
  EXPECT_EQ(scaler.scale(), 32768);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536);
  for (int step = 0; step < 1999; ++step) scaler.update(true);
  scaler.update(false);  // resets the count
  for (int step = 0; step < 1999; ++step) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(LossScaler, HasBounds) {
  LossScaler scaler({.kind = ScalingKind::dynamic, .scale = 3, .steps_to_double = 1});
  EXPECT_TRUE(scaler.update(false));
  EXPECT_TRUE(scaler.update(false));
  EXPECT_EQ(scaler.scale(), LossScaler::kSmallest);
  EXPECT_FALSE(scaler.update(false)) << "a smaller scale is of no use";
  EXPECT_EQ(scaler.scale(), LossScaler::kSmallest);
  for (int step = 0; step < 100; ++step) scaler.update(true);
  EXPECT_EQ(scaler.scale(), LossScaler::kLargest);
}

TEST(LossScaler, ChangesOnlyIfDynamic) {
  LossScaler none({});
  EXPECT_FALSE(none.is_on());
  LossScaler fixed({.kind = ScalingKind::fixed, .scale = 128});
  EXPECT_TRUE(fixed.is_on());
  for (LossScaler* scaler : {&none, &fixed}) {
    const float before = scaler->scale();
    EXPECT_FALSE(scaler->update(false));
    scaler->restore(7, 7);
    EXPECT_EQ(scaler->scale(), before);
  }
}

// Scaling by a power of two is exact.
TEST(LossScale, DoesNotChangeTheResult) {
  for (const model::Precision precision : {model::Precision::float32, model::Precision::bfloat16}) {
    try {
      model::make_backend(device::Device{}, {.precision = precision});
    } catch (const Error&) {
      continue;  // a processor without bfloat16
    }
    TrainerOptions options{
        .optimizer = model::Adam{}, .clip_norm = 0.5, .compute = {.precision = precision}};
    const Outcome plain = train(2, normalized_network(), shuffled_data(), options, {.epochs = 2});
    for (const LossScaling& scaling :
         {LossScaling{.kind = ScalingKind::fixed, .scale = 1024}, kDynamicLossScaling}) {
      options.loss_scaling = scaling;
      const Outcome scaled =
          train(2, normalized_network(), shuffled_data(), options, {.epochs = 2});
      EXPECT_EQ(scaled.parameter_hash, plain.parameter_hash);
      EXPECT_EQ(scaled.losses, plain.losses);
      for (std::size_t i = 0; i < plain.steps.size(); ++i) {
        EXPECT_DOUBLE_EQ(scaled.steps[i].gradient_norm, plain.steps[i].gradient_norm);
        EXPECT_EQ(scaled.steps[i].loss_scale, scaling.scale);
        EXPECT_FALSE(plain.steps[i].loss_scale);
      }
    }
  }
}

/// A network with gradients of about 10 to 100.
model::Network steep_network() {
  model::Network network({16}, "steep");
  network.add(model::Dense({.units = 12}));
  network.add(model::BatchNormalization({.momentum = 0.9F, .initial_gamma = 100}));
  network.add(model::Dense({.units = kClasses}));
  return network;
}

/// So large that these gradients overflow even float32.
LossScaling too_large() {
  return {.kind = ScalingKind::dynamic, .scale = std::ldexp(1.0F, 127), .steps_to_double = 1000};
}

TEST(LossScale, IsLoweredUntilTheGradientFits) {
  const data::Dataset dataset = small_data(200).shuffle().batch(40);
  for (const int replicas : {1, 3}) {
    const TrainerOptions options{
        .optimizer = model::Sgd{}, .schedule = {.peak = 1e-3F}, .loss_scaling = too_large()};
    ::testing::internal::CaptureStderr();
    const Outcome outcome = train(replicas, steep_network(), dataset, options, {.epochs = 5});
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "nothing to worry about";
    std::size_t skipped = 0;
    while (outcome.steps[skipped].overflow) {
      EXPECT_TRUE(outcome.steps[skipped].skipped);
      EXPECT_EQ(outcome.steps[skipped].loss_scale,
                std::ldexp(1.0F, 127 - static_cast<int>(skipped)));
      ++skipped;
    }
    ASSERT_GT(skipped, 0U);
    ASSERT_LT(skipped, 12U);
    for (std::size_t i = skipped; i < outcome.steps.size(); ++i)
      EXPECT_FALSE(outcome.steps[i].skipped) << i;
    const auto mean = [&](std::size_t begin) {
      return (outcome.losses[begin] + outcome.losses[begin + 1] + outcome.losses[begin + 2]) / 3;
    };
    EXPECT_LT(mean(outcome.losses.size() - 3), mean(skipped));
  }
}

TEST(LossScale, ContinuesFromACheckpoint) {
  const checkpoint::ScratchDirectory directory;
  const TrainerOptions options{
      .optimizer = model::Adam{},
      .loss_scaling = LossScaling{.kind = ScalingKind::dynamic, .scale = 16, .steps_to_double = 5}};
  FitOptions fit{.epochs = 3};
  const Outcome straight = train(2, plain_network(), shuffled_data(), options, fit);
  EXPECT_EQ(straight.steps.back().loss_scale, 128);  // after 17 of 18 steps
  fit.checkpoint.directory = directory.path();
  fit.steps = 8;
  train(2, plain_network(), shuffled_data(), options, fit);
  const std::string state =
      (checkpoint::list_checkpoints(directory.path())[0].path / checkpoint::kStateFile).string();
  EXPECT_EQ(checkpoint::parse_training_state(checkpoint::read_small_file(state), state).loss_scale,
            32);
  fit.steps = 0;
  const Outcome resumed = train(2, plain_network(), shuffled_data(), options, fit);
  ASSERT_EQ(resumed.steps.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_EQ(resumed.steps[i].loss_scale, straight.steps[8 + i].loss_scale) << i;
  EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash);
}

TEST(LossScale, IsUnchangedByANonFiniteLoss) {
  const auto source = std::make_shared<WatchedSource>(40);
  source->infinite = 25;
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train(2, plain_network(), data::Dataset::from_source(source).batch(10),
                                {.loss_scaling = kDynamicLossScaling}, {.epochs = 1});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("step 3 skipped: non-finite loss"));
  EXPECT_TRUE(outcome.steps[2].skipped);
  EXPECT_FALSE(outcome.steps[2].overflow);
  EXPECT_EQ(outcome.steps[3].loss_scale, 65536);
}

TEST(LossScale, EndsTheTrainingIfFixedAndTooLarge) {
  const TrainerOptions options{
      .optimizer = model::Sgd{},
      .loss_scaling = LossScaling{.kind = ScalingKind::fixed, .scale = std::ldexp(1.0F, 127)}};
  ::testing::internal::CaptureStderr();
  const std::string error =
      error_of([&] { train(1, steep_network(), shuffled_data(), options, {.epochs = 100}); });
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      error,
      ContainsRegex("got 100 skipped steps in a row, the last one .* for a non-finite gradient"));
}

TEST(LossScale, IsInStepEvents) {
  CapturedFile file;
  FitOptions fit{.epochs = 1};
  fit.callbacks = {std::make_shared<JsonEvents>(file.get(), 1)};
  train(1, steep_network(), shuffled_data(), {.loss_scaling = too_large()}, fit);
  EXPECT_THAT(file.text(), HasSubstr(R"("skipped":true,"overflow":true,"loss_scale":1.7)"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
