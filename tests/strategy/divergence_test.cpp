// A training that diverges keeps healthy checkpoints, and reports the newest.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/train/callbacks/json_events.h"
#include "lockstep/train/callbacks/progress.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/callbacks/captured_file.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::int64_t kBatch = 4;

enum class Damage { none, loss, gradient };
/// Returns the damage of a step in an epoch; both count from 1.
using DamageOf = std::function<Damage(std::int64_t step, std::int64_t epoch)>;

/// One feature and one target a record, in the order of their ids. The network below begins with
/// zeros and hardly moves, so that a gradient is -2 * target * feature.
class DamagedSource final : public data::RecordSource {
 public:
  DamagedSource(std::int64_t steps, DamageOf damage)
      : RecordSource({.spec = data::SampleSpec::regression({1}, 1),
                      .size = steps * kBatch,
                      .description = "spoilt samples"}),
        damage_(std::move(damage)) {}
  void read(std::int64_t id, data::Sample& sample) const override {
    sample.features()[0] = 1;
    sample.values()[0] = static_cast<float>(16 * (1 + id % 3));
    if (id % kBatch != 2) return;  // one record of a batch
    const Damage damage = damage_(id / kBatch + 1, sample.epoch + 1);
    if (damage == Damage::loss) sample.values()[0] = std::numeric_limits<float>::infinity();
    if (damage == Damage::gradient) {  // a loss of 1e30, a gradient of 1e45
      sample.features()[0] = 1e30F;
      sample.values()[0] = 1e15F;
    }
  }

 private:
  DamageOf damage_;
};

data::Dataset damaged_data(std::int64_t steps, DamageOf damage) {
  return data::Dataset::from_source(std::make_shared<DamagedSource>(steps, std::move(damage)))
      .batch(kBatch);
}
data::Dataset sound(std::int64_t steps) {
  return damaged_data(steps, [](auto, auto) { return Damage::none; });
}

model::Network flat_network() {
  model::Network network({1}, "flat");
  network.add(model::Dense({.units = 1, .initializer = model::Initializer::Kind::constant}));
  return network;
}

TrainerOptions slow() {
  return {.loss = model::MeanSquaredError{},
          .optimizer = model::Sgd{.momentum = 0.9F},
          .schedule = {.peak = 1e-20F}};
}

FitOptions saving_to(const checkpoint::ScratchDirectory& directory, std::int64_t save_every,
                     int keep) {
  FitOptions fit{.epochs = 1};
  fit.checkpoint.directory = directory.path();
  fit.checkpoint.save_every = save_every;
  fit.checkpoint.keep = keep;
  return fit;
}

std::vector<std::int64_t> steps_of(const checkpoint::ScratchDirectory& directory,
                                   bool healthy = true) {
  std::vector<std::int64_t> steps;
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory.path()))
    if (info.complete() && info.healthy == healthy) steps.push_back(info.step);
  return steps;
}

std::string path_of(const checkpoint::ScratchDirectory& directory, std::int64_t step) {
  return (directory.path() / checkpoint::checkpoint_name(step)).string();
}

/// The standard error of a training, and its Error (diverged).
struct Ended {
  std::string error;
  std::string errors;
};
Ended end_of(int replicas, const data::Dataset& dataset, const FitOptions& fit,
             const TrainerOptions& options = slow()) {
  Ended ended;
  ::testing::internal::CaptureStderr();
  try {
    train(replicas, flat_network(), dataset, options, fit);
    ended.error = "none";
  } catch (const Error& error) {
    ended.error = error.what();
    EXPECT_EQ(exit_status(error.category()), 6) << error.what();
  }
  ended.errors = ::testing::internal::GetCapturedStderr();
  return ended;
}

TEST(Divergence, SkipsAStepWithAFiniteLossAndAnInfiniteGradient) {
  const data::Dataset dataset =
      damaged_data(4, [](auto step, auto) { return step == 2 ? Damage::gradient : Damage::none; });
  for (const model::Precision precision : {model::Precision::float32, model::Precision::bfloat16}) {
    try {
      model::make_backend(device::Device{}, {.precision = precision});
    } catch (const Error&) {
      continue;  // a processor without bfloat16
    }
    TrainerOptions options = slow();
    options.compute.precision = precision;
    for (const int replicas : {1, 2, 3}) {
      ::testing::internal::CaptureStderr();
      const Outcome outcome = train(replicas, flat_network(), dataset, options, {.epochs = 1});
      EXPECT_EQ(::testing::internal::GetCapturedStderr(),
                "lockstep: warning: step 2 skipped: non-finite gradient\n");
      ASSERT_EQ(outcome.steps.size(), 4U);
      EXPECT_TRUE(outcome.steps[1].skipped);
      EXPECT_FALSE(outcome.steps[1].overflow);
      EXPECT_FALSE(outcome.steps[2].skipped);
      EXPECT_EQ(outcome.history.epochs[0].skipped_samples, kBatch);
      EXPECT_EQ(outcome.history.epochs[0].metrics.samples, 3 * kBatch);
      for (const float value : outcome.parameters) EXPECT_TRUE(std::isfinite(value));
      EXPECT_NE(outcome.parameters.front(), 0);
    }
  }
}

TEST(Divergence, PostponesASaveToTheNextGoodStep) {
  for (const int replicas : {1, 2}) {
    const checkpoint::ScratchDirectory directory;
    const auto damage = [](std::int64_t step, std::int64_t) {
      return step == 4 || step == 6 || step == 7 ? Damage::gradient : Damage::none;
    };
    EXPECT_EQ(end_of(replicas, damaged_data(10, damage), saving_to(directory, 2, 9)).error, "none");
    EXPECT_THAT(steps_of(directory), ElementsAre(10, 8, 5, 2));
  }
}

TEST(Divergence, KeepsTheHealthyCheckpointsAndNamesTheNewest) {
  for (const int replicas : {1, 2}) {
    for (const Damage kind : {Damage::gradient, Damage::loss}) {
      const checkpoint::ScratchDirectory directory;
      const auto after_5 = [kind](std::int64_t step, std::int64_t) {
        return step > 5 ? kind : Damage::none;
      };
      const Ended ended = end_of(replicas, damaged_data(120, after_5), saving_to(directory, 1, 2));
      const std::string reason = kind == Damage::gradient ? "non-finite gradient"
                                 : replicas == 1          ? "non-finite loss on rank 0"
                                                          : "non-finite loss on rank 0 (replica 1)";
      EXPECT_EQ(ended.error, fmt::format("[train] expected finite losses, gradients and "
                                         "parameters; try a lower learning rate, "
                                         "warm-up or clipping, got 100 skipped steps in a row, the "
                                         "last one (105) for a {}; the "
                                         "newest healthy checkpoint is {}",
                                         reason, path_of(directory, 4)));
      // Only skipped steps followed the checkpoint of step 5.
      EXPECT_THAT(steps_of(directory), ElementsAre(4, 3));
      EXPECT_THAT(steps_of(directory, false), ElementsAre(5));
      FitOptions fit = saving_to(directory, 1, 2);
      fit.steps = 8;
      const Outcome again = train(replicas, flat_network(), sound(120), slow(), fit);
      EXPECT_EQ(again.steps.size(), 4U) << "after step 4";
      EXPECT_EQ(again.parameter_hash,
                train(replicas, flat_network(), sound(120), slow(), {.epochs = 1, .steps = 8})
                    .parameter_hash);
      EXPECT_THAT(steps_of(directory), ElementsAre(8, 7));
      EXPECT_THAT(steps_of(directory, false), IsEmpty());
    }
  }
}

TEST(Divergence, MarksACheckpointSavedAmongSkippedSteps) {
  const checkpoint::ScratchDirectory directory;
  const auto after_8 = [](std::int64_t step, std::int64_t) {
    return step > 8 ? Damage::loss : Damage::none;
  };
  for (int run = 0; run < 2; ++run) {  // the second does the same: nothing accumulates
    const Ended ended = end_of(1, damaged_data(10, after_8), saving_to(directory, 4, 1));
    EXPECT_EQ(ended.error,
              fmt::format("[train] expected finite losses, gradients and parameters; try a lower "
                          "learning rate, warm-up or clipping, got 2 skipped steps at the end; the "
                          "newest healthy checkpoint is {}",
                          path_of(directory, 4)));
    EXPECT_THAT(ended.errors,
                HasSubstr(fmt::format(
                    "{} is marked as not healthy, because the last 2 steps were skipped: --resume "
                    "uses an older checkpoint",
                    path_of(directory, 10))));
    EXPECT_THAT(steps_of(directory), ElementsAre(4));
    // No good step followed step 8.
    EXPECT_THAT(steps_of(directory, false), ElementsAre(10, 8));
  }
  EXPECT_EQ(train(1, flat_network(), sound(10), slow(), saving_to(directory, 4, 1)).steps.size(),
            6U);
  EXPECT_THAT(steps_of(directory), ElementsAre(10));
}

TEST(Divergence, AtTheEndIsNotHiddenByEarlierGoodSteps) {
  for (const int replicas : {1, 2}) {
    FitOptions fit{.epochs = 1};
    CapturedFile events;
    CapturedFile text;
    fit.callbacks = {std::make_shared<JsonEvents>(events.get(), 0),
                     std::make_shared<ProgressBar>(text.get(), ProgressOptions{.log_every = 0})};
    const auto after_3 = [](std::int64_t step, std::int64_t) {
      return step > 3 ? Damage::gradient : Damage::none;
    };
    EXPECT_THAT(end_of(replicas, damaged_data(30, after_3), fit).error,
                HasSubstr("got 27 skipped steps at the end"));
    const nlohmann::json end =
        nlohmann::json::parse(events.text().substr(events.text().find(R"({"event":"end")")));
    EXPECT_EQ(end.at("skipped_steps"), 27);
    EXPECT_EQ(end.at("healthy"), false);
    EXPECT_THAT(
        text.text(),
        HasSubstr("\n27 of the 30 steps of this run skipped: loss or gradient not finite\n"));
  }
}

TEST(Divergence, BeforeTheEndIsCountedAtTheEnd) {
  const auto dataset =
      damaged_data(30, [](auto step, auto) { return step < 28 ? Damage::loss : Damage::none; });
  ::testing::internal::CaptureStderr();
  const History history = train(1, flat_network(), dataset, slow(), {.epochs = 1}).history;
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(history.end.skipped_steps, 27);
  EXPECT_TRUE(history.end.healthy);
}

TEST(Divergence, KeepsHealthyCheckpointsOnASignal) {
  const checkpoint::ScratchDirectory directory;
  const auto after_4 = [](std::int64_t step, std::int64_t) {
    return step > 4 ? Damage::gradient : Damage::none;
  };
  FitOptions fit = saving_to(directory, 2, 1);
  fit.callbacks = {std::make_shared<RaiseAfter>(7)};
  fit.signals = {SIGTERM};
  EXPECT_EQ(end_of(2, damaged_data(50, after_4), fit).error, "none");
  EXPECT_THAT(steps_of(directory), ElementsAre(4, 2));
  EXPECT_THAT(steps_of(directory, false), ElementsAre(8));
  EXPECT_EQ(train(2, flat_network(), sound(50), slow(), saving_to(directory, 2, 1)).steps.size(),
            46U);
}

TEST(Divergence, InAnEpochWithoutAGoodStepIsReportedAsNull) {
  const auto dataset = [](std::int64_t bad_epoch) {
    return damaged_data(
        3, [=](auto, auto epoch) { return epoch == bad_epoch ? Damage::loss : Damage::none; });
  };
  FitOptions fit{.epochs = 2};
  CapturedFile events;
  CapturedFile text;
  fit.callbacks = {std::make_shared<JsonEvents>(events.get(), 0),
                   std::make_shared<ProgressBar>(text.get(), ProgressOptions{.log_every = 0})};
  const Ended ended = end_of(1, dataset(2), fit);
  EXPECT_EQ(ended.error,
            "[train] expected finite losses, gradients and parameters; try a lower learning rate, "
            "warm-up or clipping, "
            "got 3 skipped steps at the end");
  EXPECT_THAT(events.text(), HasSubstr(R"("event":"epoch","epoch":1,)"));
  EXPECT_THAT(events.text(), HasSubstr(R"("loss":null)"));
  EXPECT_THAT(events.text(), Not(HasSubstr("NaN")));
  EXPECT_THAT(events.text(), HasSubstr(R"("event":"end")"));
  EXPECT_THAT(text.text(), ::testing::ContainsRegex("\n    2 +[0-9]+/[0-9]+ +nan "));
  const nlohmann::json end =
      nlohmann::json::parse(events.text().substr(events.text().find(R"({"event":"end")")));
  EXPECT_EQ(end.at("best_epoch"), 0);
  // One that recovers has not diverged.
  const Outcome outcome = train(1, flat_network(), dataset(1), slow(), {.epochs = 2});
  EXPECT_TRUE(std::isnan(outcome.history.epochs[0].metrics.loss()));
  EXPECT_TRUE(std::isfinite(outcome.history.epochs[1].metrics.loss()));
}

TEST(Divergence, NonFiniteParametersAreNeverSaved) {
  const checkpoint::ScratchDirectory directory;
  TrainerOptions options = slow();
  options.schedule.peak = 3e38F;
  const Ended ended = end_of(2, sound(10), saving_to(directory, 1, 3), options);
  EXPECT_THAT(ended.error, HasSubstr(", got a value of dense/"));
  EXPECT_THAT(
      ended.error,
      HasSubstr(" that is not finite, after step 1; there is no healthy checkpoint of this run"));
  EXPECT_THAT(steps_of(directory), IsEmpty());
  EXPECT_THAT(steps_of(directory, false), IsEmpty());
}

TEST(Divergence, DoesNotIncludeOverflowsOfTheLossScale) {
  const checkpoint::ScratchDirectory directory;
  TrainerOptions options = slow();
  // The gradient of about 56 fits after some halvings; after one it does not yet.
  options.loss_scaling =
      LossScaling{.kind = LossScaling::Kind::dynamic, .scale = std::ldexp(1.0F, 127)};
  options.schedule.peak = 1e-3F;
  FitOptions fit = saving_to(directory, 1, 3);
  fit.steps = 1;
  const Ended ended = end_of(2, sound(10), fit, options);
  EXPECT_EQ(ended.error, "none");
  EXPECT_EQ(ended.errors, "");
  EXPECT_THAT(steps_of(directory), ElementsAre(1))
      << "the end of a training is saved, as sound as it was before";
  // Before that, a skipped step is not saved, but the next good one.
  fit.steps = 0;
  const Outcome outcome = train(2, flat_network(), sound(10), options, fit);
  std::int64_t skipped = 0;
  for (const StepLogs& step : outcome.steps) skipped += step.overflow ? 1 : 0;
  ASSERT_GT(skipped, 0);
  EXPECT_THAT(steps_of(directory), ElementsAre(10, 9, 8));
}

class Retention : public ::testing::Test {
 protected:
  checkpoint::CheckpointDirectory directory(int keep) const {
    return {{scratch_.path(), keep}, checkpoint::alone()};
  }
  /// Saves steps with their marks, pruning after each.
  void save(checkpoint::CheckpointDirectory& checkpoints, std::int64_t step, bool healthy = true) {
    checkpoints.save(replica_.arrays(), checkpoint::at_step(step), {.healthy = healthy});
  }
  checkpoint::ScratchDirectory scratch_;
  checkpoint::SmallReplica replica_;
};

TEST_F(Retention, CountsHealthyCheckpoints) {
  checkpoint::CheckpointDirectory checkpoints = directory(2);
  for (std::int64_t step = 1; step <= 3; ++step) save(checkpoints, step);
  EXPECT_THAT(steps_of(scratch_), ElementsAre(3, 2));
  for (std::int64_t step = 4; step <= 9; ++step) save(checkpoints, step, false);
  EXPECT_THAT(steps_of(scratch_), ElementsAre(3, 2));
  EXPECT_THAT(steps_of(scratch_, false), ElementsAre(9)) << "only the newest of those that are not";
  save(checkpoints, 10);
  EXPECT_THAT(steps_of(scratch_), ElementsAre(10, 3));
  EXPECT_THAT(steps_of(scratch_, false), IsEmpty());
}

TEST_F(Retention, IsDeferredOnRequest) {
  checkpoint::CheckpointDirectory checkpoints = directory(1);
  save(checkpoints, 1);
  checkpoints.save(replica_.arrays(), checkpoint::at_step(2), {.prune = false});
  EXPECT_THAT(steps_of(scratch_), ElementsAre(2, 1));
  checkpoints.prune();
  EXPECT_THAT(steps_of(scratch_), ElementsAre(2));
}

TEST_F(Retention, KeepsTheBestUntilABetterOneIsComplete) {
  const auto save_best = [&](checkpoint::CheckpointDirectory& checkpoints, std::int64_t step,
                             double value, bool prune) {
    checkpoints.save(replica_.arrays(), checkpoint::at_step(step),
                     {.prune = prune, .best = checkpoint::BestMark{"validation_loss", value}});
  };
  const auto best = [&] {
    return checkpoint::resolve_best(scratch_.path().string() + ":best").filename();
  };
  EXPECT_THAT(allreduce::error_of(best), HasSubstr("which train --keep-best marks"));
  {
    checkpoint::CheckpointDirectory checkpoints = directory(1);
    save_best(checkpoints, 1, 0.5, true);
    for (std::int64_t step = 2; step <= 4; ++step) save(checkpoints, step);
    EXPECT_THAT(steps_of(scratch_), ElementsAre(4, 1));
    EXPECT_EQ(best(), "step-00000001");
    save_best(checkpoints, 5, 0.25, false);  // interrupted before it removes the others
  }
  EXPECT_EQ(best(), "step-00000005");
  EXPECT_THAT(steps_of(scratch_), ElementsAre(5, 4, 1));
  checkpoint::CheckpointDirectory checkpoints = directory(1);
  save(checkpoints, 6);
  EXPECT_THAT(steps_of(scratch_), ElementsAre(6, 5));
  checkpoints.mark_unhealthy(scratch_.path() / checkpoint::checkpoint_name(5));
  EXPECT_THAT(allreduce::error_of(best), HasSubstr("none of its checkpoints is marked"));
}

TEST_F(Retention, RestoresTheNewestHealthyCheckpoint) {
  checkpoint::CheckpointDirectory checkpoints = directory(3);
  save(checkpoints, 1);
  save(checkpoints, 2);
  save(checkpoints, 3, false);
  EXPECT_EQ(checkpoints.restore(replica_.arrays())->state.step, 2);
  EXPECT_THAT(checkpoints.skipped(),
              ElementsAre(fmt::format("[{}] expected a healthy checkpoint, got one saved "
                                      "while steps were skipped",
                                      path_of(scratch_, 3))));
  checkpoints.mark_unhealthy(scratch_.path() / checkpoint::checkpoint_name(2));
  EXPECT_EQ(checkpoints.restore(replica_.arrays())->state.step, 1);
  checkpoint::flip_bit(scratch_.path() / checkpoint::checkpoint_name(1) / checkpoint::kModelFile,
                       400);
  EXPECT_EQ(checkpoints.restore(replica_.arrays())->state.step, 3) << "better than none";
}

TEST_F(Retention, KeepsAllUpToTheLimit) {
  checkpoint::CheckpointDirectory checkpoints = directory(std::numeric_limits<int>::max());
  save(checkpoints, 1);
  save(checkpoints, 2);
  save(checkpoints, 3, false);
  checkpoints.prune();
  EXPECT_EQ(checkpoint::list_checkpoints(scratch_.path()).size(), 3U);
}

constexpr std::int64_t kLargestEpoch = std::numeric_limits<std::int64_t>::max();

// The files were edited, but their manifest is valid.
TEST(Resumed, RejectsInvalidNumbers) {
  const auto error = [](const std::string& name, const nlohmann::json& value) {
    const checkpoint::ScratchDirectory directory;
    FitOptions fit = saving_to(directory, 0, 3);
    TrainerOptions options = slow();
    options.loss_scaling = kDynamicLossScaling;
    fit.steps = 2;
    train(1, flat_network(), sound(6), options, fit);
    const auto checkpoint = directory.path() / checkpoint::checkpoint_name(2);
    nlohmann::json state =
        nlohmann::json::parse(checkpoint::contents_of(checkpoint / checkpoint::kStateFile));
    (state.contains(name) ? state[name] : state["metrics"][name]) = value;
    checkpoint::overwrite(checkpoint / checkpoint::kStateFile, state.dump());
    checkpoint::Manifest manifest = checkpoint::read_manifest(checkpoint);
    for (checkpoint::FileDigest& file : manifest.files)
      file = checkpoint::digest_file(checkpoint / file.name);
    checkpoint::write_manifest(checkpoint, manifest);
    fit.steps = 0;
    return error_of([&] { train(1, flat_network(), sound(6), options, fit); });
  };
  for (const nlohmann::json& value :
       {nlohmann::json(), nlohmann::json(-1), nlohmann::json(0.5), nlohmann::json(1e300)})
    for (const char* name :
         {"updates", "epoch_samples", "epoch_skipped_samples", "loss_scale_good_steps"})
      EXPECT_THAT(error(name, value), HasSubstr(fmt::format("expected a count as {}, got", name)))
          << value;
  for (const nlohmann::json& value :
       {nlohmann::json(), nlohmann::json(0), nlohmann::json(-2), nlohmann::json(1e300)})
    EXPECT_THAT(error("loss_scale", value),
                HasSubstr("[loss scale] expected a finite scale above 0"))
        << value;
  EXPECT_THAT(error("updates", 2), Not(HasSubstr("expected")));
  for (const std::int64_t epoch : {std::int64_t{-1}, std::int64_t{5}, kLargestEpoch})
    EXPECT_THAT(error("epoch", epoch), HasSubstr("expected an epoch that step 2 is in, of "));
}

/// A user-defined metric: the number of samples.
class SamplesSeen final : public model::Metric {
 public:
  std::string name() const override { return "seen"; }
  std::size_t sums() const override { return 1; }
  void add(std::span<const float> outputs, const model::Targets& targets, std::int64_t samples,
           std::vector<double>& sums) const override {
    EXPECT_EQ(outputs.size(), targets.values.size());
    for (const float target : targets.values) EXPECT_TRUE(std::isfinite(target));
    sums[0] += static_cast<double>(samples);
  }
  std::vector<model::MetricValue> values(std::span<const double> sums) const override {
    return {{.name = name(), .values = {sums[0]}}};
  }
};

TEST(Divergence, ExcludesSkippedStepsFromMetrics) {
  const data::Dataset dataset = damaged_data(5, [](std::int64_t step, auto) {
    return step == 2 ? Damage::loss : step == 4 ? Damage::gradient : Damage::none;
  });
  TrainerOptions options = slow();
  options.metrics = {std::make_shared<SamplesSeen>()};
  for (const int replicas : {1, 3}) {
    const EpochLogs epoch =
        train(replicas, flat_network(), dataset, options).history.epochs.front();
    EXPECT_EQ(epoch.skipped_samples, 2 * kBatch);
    EXPECT_EQ(epoch.metric("seen"), 3 * kBatch) << replicas << " replicas";
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
