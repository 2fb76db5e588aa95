// An interrupted and resumed training is bitwise equal to an uninterrupted one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/manifest.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/plateau.h"
#include "lockstep/train/fit/fit_state.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::HasSubstr;

/// Shuffled, dropout, Adam with a schedule, clipping: everything that has a state or a random
/// number.
TrainerOptions full_options() {
  return {.metrics =
              model::make_metrics("f1,confusion", model::SparseCategoricalCrossentropy{}, kClasses),
          .optimizer = model::Adam{},
          .schedule = {.kind = model::Schedule::Kind::cosine,
                       .peak = 0.01F,
                       .warmup_steps = 3,
                       .total_steps = 18},
          .clip_norm = 1.0};
}

FitOptions saving_to(const checkpoint::ScratchDirectory& directory, std::int64_t save_every,
                     std::int64_t steps) {
  FitOptions fit{.epochs = 3, .steps = steps};
  fit.checkpoint.directory = directory.path();
  fit.checkpoint.save_every = save_every;
  return fit;
}

class Resume : public ::testing::TestWithParam<std::tuple<int, std::int64_t>> {};

TEST_P(Resume, IsExactAtAnyStep) {
  const auto [replicas, interruption] = GetParam();
  for (const auto network : {dropout_network, normalized_network}) {
    const checkpoint::ScratchDirectory straight;
    const Outcome expected = train(replicas, network(), shuffled_data(), full_options(),
                                   saving_to(straight, interruption, 0));
    ASSERT_EQ(expected.history.end.steps, 18);

    const checkpoint::ScratchDirectory directory;
    train(replicas, network(), shuffled_data(), full_options(),
          saving_to(directory, interruption, interruption));
    const Outcome resumed = train(replicas, network(), shuffled_data(), full_options(),
                                  saving_to(directory, interruption, 0));
    EXPECT_EQ(resumed.losses.size(), 18U - static_cast<std::size_t>(interruption));
    EXPECT_EQ(resumed.parameter_hash, expected.parameter_hash);
    EXPECT_EQ(resumed.buffers, expected.buffers);
    const auto& last = resumed.history.epochs.back();
    EXPECT_EQ(last.samples, 203);
    EXPECT_EQ(last.metrics.correct, expected.history.epochs.back().metrics.correct);
    EXPECT_EQ(last.values, expected.history.epochs.back().values);
    EXPECT_NEAR(last.metrics.loss_sum, expected.history.epochs.back().metrics.loss_sum, 1e-9);
  }
}

std::string name_of_interruption(const ::testing::TestParamInfo<Resume::ParamType>& info) {
  const auto [replicas, interruption] = info.param;
  return fmt::format("replicas_{}_after_step_{}", replicas, interruption);
}

// 6 steps an epoch: at its end, in the middle, one before its end.
INSTANTIATE_TEST_SUITE_P(Steps, Resume,
                         ::testing::Combine(::testing::Values(1, 3),
                                            ::testing::Values<std::int64_t>(6, 8, 17)),
                         name_of_interruption);

TEST(ResumeFrom, AnyStepOfSeveralLossesIsExact) {
  const data::Dataset houses = house_data().shuffle().batch(40);
  const auto train_houses = [&](const FitOptions& fit) {
    return train(3, house_network(), houses, house_options(), fit);
  };
  const checkpoint::ScratchDirectory straight;
  const checkpoint::ScratchDirectory directory;
  const Outcome expected = train_houses(saving_to(straight, 8, 0));
  train_houses(saving_to(directory, 8, 8));
  const Outcome resumed = train_houses(saving_to(directory, 8, 0));
  EXPECT_EQ(resumed.losses.size(), 10U);
  EXPECT_EQ(resumed.parameter_hash, expected.parameter_hash);
  const auto& epoch = resumed.history.epochs[0];  // resumed in its middle
  for (const char* name : {"kind_loss", "kind_accuracy", "cost_loss", "cost_mae"})
    EXPECT_NEAR(epoch.metric(name).value_or(-1),
                expected.history.epochs[1].metric(name).value_or(-2), 1e-9)
        << name;
}

TEST(ResumeFrom, AnotherStepMixesTheSameSamples) {
  for (const int replicas : {1, 3}) {
    const auto train_mixed = [&](const FitOptions& fit, double alpha) {
      return train(replicas, dropout_network(), shuffled_data().mixup(alpha), full_options(), fit);
    };
    const Outcome straight = train_mixed({.epochs = 3}, 0.3);
    const checkpoint::ScratchDirectory directory;
    train_mixed(saving_to(directory, 4, 8), 0.3);
    EXPECT_THAT(
        error_of([&] { train_mixed(saving_to(directory, 4, 0), 0.2); }),
        HasSubstr(
            "(\", mixup 0.3\"), got \", mixup 0.2\"; use another --checkpoint-dir to start over"));
    EXPECT_THAT(error_of([&] { train_mixed(saving_to(directory, 4, 0), 0); }),
                HasSubstr("got \"\""));
    EXPECT_EQ(train_mixed(saving_to(directory, 4, 0), 0.3).parameter_hash, straight.parameter_hash);
  }
}

TEST(ResumeFrom, AnEndedTrainingDoesNothing) {
  const checkpoint::ScratchDirectory directory;
  const Outcome first = train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 0));
  const Outcome again = train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 0));
  EXPECT_TRUE(again.losses.empty());
  EXPECT_TRUE(again.history.epochs.empty());
  EXPECT_EQ(again.parameter_hash, first.parameter_hash);
}

TEST(ResumeFrom, AnotherNumberOfReplicasReadsTheSameRecords) {
  const checkpoint::ScratchDirectory directory;
  const Outcome straight =
      train(1, dropout_network(), shuffled_data(), full_options(), {.epochs = 3});
  train(3, dropout_network(), shuffled_data(), full_options(), saving_to(directory, 0, 8));
  const Outcome resumed =
      train(2, dropout_network(), shuffled_data(), full_options(), saving_to(directory, 0, 0));
  ASSERT_EQ(resumed.losses.size(), 10U);
  for (std::size_t i = 0; i < 10; ++i)
    EXPECT_NEAR(resumed.losses[i], straight.losses[i + 8], 1e-4 * straight.losses[i + 8]);
}

TEST(ResumeFrom, NeverStartsOver) {
  const checkpoint::ScratchDirectory directory;
  const Outcome first = train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 0));
  FitOptions fit = saving_to(directory, 0, 0);
  fit.checkpoint.resume = checkpoint::Resume::never;
  EXPECT_THAT(error_of([&] { train(1, plain_network(), shuffled_data(), {}, fit); }),
              HasSubstr("expected a directory without checkpoints for --resume never"));
  fit.checkpoint.overwrite = true;
  const Outcome again = train(1, plain_network(), shuffled_data(), {}, fit);
  EXPECT_EQ(again.losses, first.losses);
}

// Not even the best one, which the second training does not reach.
TEST(ResumeFrom, NeverReplacesEarlierCheckpoints) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit = saving_to(directory, 2, 0);
  fit.checkpoint.keep_best = MonitoredMetric{.name = "loss"};
  train(1, plain_network(), shuffled_data(), {.seed = 5}, fit);
  ASSERT_NE(checkpoint::find_best(checkpoint::list_checkpoints(directory.path())), nullptr);
  fit = saving_to(directory, 0, 4);
  fit.checkpoint.resume = checkpoint::Resume::never;
  fit.checkpoint.overwrite = true;
  train(1, plain_network(), shuffled_data(), {}, fit);
  const auto found = checkpoint::list_checkpoints(directory.path());
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found.front().step, 4);
  EXPECT_EQ(checkpoint::find_best(found), nullptr);
}

TEST(ResumeFrom, WarnsOfSettingsWithoutEffect) {
  const checkpoint::ScratchDirectory directory;
  train(1, plain_network(), shuffled_data(), {.schedule = {.peak = 0.25F}},
        saving_to(directory, 0, 0));
  const auto warnings_of = [&](const TrainerOptions& options) {
    ::testing::internal::CaptureStderr();
    train(1, plain_network(), shuffled_data(), options, saving_to(directory, 0, 0));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warnings_of({.schedule = {.peak = 0.25F}}), "");
  EXPECT_THAT(warnings_of({.schedule = {.peak = 0.125F}, .clip_norm = 2}),
              ::testing::AllOf(HasSubstr("peak learning rate: 0.25 in the earlier run; no "
                                         "step is left to train with 0.125\n"),
                               HasSubstr("maximum gradient norm: 0 in the earlier run; no step is "
                                         "left to train with 2\n")));
}

TEST(ResumeFrom, ACheckpointStoresWhetherItsTrainingFinished) {
  const checkpoint::ScratchDirectory directory;
  const auto finished = [&](const char* name) {
    const std::filesystem::path file = directory.path() / name / checkpoint::kStateFile;
    return checkpoint::parse_training_state(checkpoint::read_small_file(file), "state")
        .configuration->contains(kFinishedKey);
  };
  train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 8, 0));
  EXPECT_FALSE(finished("step-00000016"));
  EXPECT_TRUE(finished("step-00000018"));
}

TEST(ResumeFrom, RejectsAnotherBatchSeedOrDataSet) {
  const checkpoint::ScratchDirectory directory;
  train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 4));
  const auto error = [&](const data::Dataset& dataset, const TrainerOptions& options) {
    return error_of(
        [&] { train(1, plain_network(), dataset, options, saving_to(directory, 0, 0)); });
  };
  EXPECT_EQ(error(small_data().batch(20), {}),
            fmt::format("[resume] expected the global batch of {}, 40, on which the position in "
                        "the data depends, got 20; use another --checkpoint-dir to start over",
                        (directory.path() / "step-00000004").string()));
  EXPECT_THAT(error(small_data().batch(40), {}),
              ::testing::AllOf(HasSubstr("expected the order of records of"),
                               HasSubstr(", shuffled one by one, got in the order of ids; use "
                                         "another --checkpoint-dir to start over")));
  EXPECT_THAT(error(shuffled_data(), {.seed = 2}), HasSubstr("expected the seed of"));
  EXPECT_THAT(error(small_data(500).shuffle().batch(40), {}),
              HasSubstr("expected the number of records of"));
}

TEST(ResumeFrom, RejectsAnotherModelOrOptimizer) {
  const checkpoint::ScratchDirectory directory;
  train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 4));
  const auto error = [&](const model::Network& network, const TrainerOptions& options) {
    return error_of(
        [&] { train(1, network, shuffled_data(), options, saving_to(directory, 0, 0)); });
  };
  const std::string path = (directory.path() / "step-00000004").string();
  const std::string network = "[resume] expected the network of " + path + ", plain";
  const std::string over = "; use another --checkpoint-dir to start over";
  EXPECT_EQ(error(normalized_network(), {}), network + ", got normalized" + over);
  const auto plain = [](const std::vector<std::int64_t>& units) {
    model::Network other({16}, "plain");
    for (const std::int64_t width : units) {
      if (other.last() != model::kInput) other.add(model::ReLU());
      other.add(model::Dense({.units = width}));
    }
    return other;
  };
  EXPECT_EQ(error(plain({13, kClasses}), {}),
            network + ", with \"units\": 12 in layer 0, got 13" + over);
  EXPECT_EQ(error(plain({12, kClasses, kClasses}), {}), network + ", with 3 layers, got 5" + over);
  model::Network other({16}, "plain");
  other.add(model::Dense({.units = 12}));
  other.add(model::BatchNormalization({.momentum = 0.9F}));
  other.add(model::Dense({.units = kClasses}));
  EXPECT_EQ(error(other, {}), network + ", with relu as layer 1, got batch_normalization" + over);
  model::Network named({{.name = "table", .shape = {16}}}, "plain");
  named.add(model::Dense({.units = kClasses}));
  EXPECT_EQ(error(named, {}), network + ", with \"input\": [16], got none" + over);
  EXPECT_EQ(error(plain_network(), {.optimizer = model::Sgd{.momentum = 0.9F}}),
            "[resume] expected a checkpoint of sgd, got one of adam" + over +
                ", with --init-from " + path + " to begin with its weights");
}

TEST(ResumeFrom, RejectsAnOptimizerWithOtherSlots) {
  const checkpoint::ScratchDirectory directory;
  train(1, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 4));
  const TrainerOptions sgd{.optimizer = model::Sgd{}};
  EXPECT_THAT(
      error_of(
          [&] { train(1, plain_network(), shuffled_data(), sgd, saving_to(directory, 0, 0)); }),
      HasSubstr("expected a checkpoint of sgd, got one of adam; use another --checkpoint-dir"));
}

TEST(ResumeFrom, StatesTheHyperparametersOfOptimizersWithTheSameName) {
  const checkpoint::ScratchDirectory directory;
  const TrainerOptions sgd{.optimizer = model::Sgd{}};
  const TrainerOptions momentum{.optimizer = model::Sgd{.momentum = 0.9F}};
  train(1, plain_network(), shuffled_data(), momentum, saving_to(directory, 0, 4));
  EXPECT_THAT(
      error_of(
          [&] { train(1, plain_network(), shuffled_data(), sgd, saving_to(directory, 0, 0)); }),
      HasSubstr("expected a checkpoint of sgd:momentum=0,weight_decay=0,nesterov=false, got one of "
                "sgd:momentum=0.9,weight_decay=0,nesterov=false; use another --checkpoint-dir"));
}

TEST(ResumeFrom, IsBitwiseExactWithLayerWiseRates) {
  for (const model::OptimizerOptions& optimizer :
       {model::OptimizerOptions(model::Lars{}), model::OptimizerOptions(model::Lamb{})}) {
    const checkpoint::ScratchDirectory directory;
    const TrainerOptions options{.optimizer = optimizer};
    const Outcome straight =
        train(1, plain_network(), shuffled_data(), options, {.epochs = 0, .steps = 9});
    train(1, plain_network(), shuffled_data(), options, saving_to(directory, 0, 4));
    const Outcome resumed =
        train(1, plain_network(), shuffled_data(), options, saving_to(directory, 0, 9));
    EXPECT_EQ(resumed.losses.size(), 5U);
    EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash) << to_string(optimizer);
  }
}

TEST(ResumeFrom, WarnsOfAnotherScheduleEnd) {
  const checkpoint::ScratchDirectory directory;
  TrainerOptions options{.schedule = {.kind = model::Schedule::Kind::cosine}};
  train(1, plain_network(), shuffled_data(), options, saving_to(directory, 0, 4));
  ::testing::internal::CaptureStderr();
  train(1, plain_network(), shuffled_data(), options, saving_to(directory, 0, 0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("schedule ended at step 4 in the earlier run, and now ends at 18"));
}

TEST(ResumeFrom, WarnsOfAnotherRateOrOptimizer) {
  const checkpoint::ScratchDirectory directory;
  train(1, plain_network(), shuffled_data(), {.schedule = {.peak = 0.25F}},
        saving_to(directory, 0, 4));
  const auto warnings_of = [&](const TrainerOptions& options, std::int64_t steps) {
    ::testing::internal::CaptureStderr();
    train(1, plain_network(), shuffled_data(), options, saving_to(directory, 0, steps));
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warnings_of({.schedule = {.peak = 0.25F}}, 5), "");
  EXPECT_THAT(warnings_of({.optimizer = model::AdamW{},
                           .schedule = {.kind = model::Schedule::Kind::linear, .peak = 0.125F}},
                          6),
              ::testing::AllOf(
                  HasSubstr("peak learning rate: 0.25 in the earlier run; the training continues "
                            "with 0.125\n"),
                  HasSubstr("learning-rate schedule: constant in the earlier run; the training "
                            "continues with linear\n"),
                  HasSubstr("optimizer: adam:beta1="),
                  HasSubstr("the training continues with adamw:beta1=")));
}

TEST(ResumeFrom, WarnsOfOtherSettingsOrNetwork) {
  const checkpoint::ScratchDirectory directory;
  const auto network = [](float rate) {
    model::Network result({16});
    result.add(model::Dense({.units = kClasses}));
    result.add(model::Dropout({.rate = rate}));
    return result;
  };
  FitOptions fit = saving_to(directory, 0, 6);
  fit.checkpoint.keep_best = MonitoredMetric{.name = "loss"};
  train(1, network(0.25F), shuffled_data(), {}, fit);
  TrainerOptions options;
  options.loss = model::SparseCategoricalCrossentropy{.label_smoothing = 0.125F};
  options.clip_norm = 2;
  options.schedule.warmup_steps = 2;
  fit.steps = 12;
  ::testing::internal::CaptureStderr();
  train(1, network(0.5F), shuffled_data(), options, fit);
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  for (const char* warning :
       {"losses: cross-entropy in the earlier run; the training continues with cross-entropy",
        "maximum gradient norm: 0 in the earlier run; the training continues with 2\n",
        "warm-up steps: 0 in the earlier run; the training continues with 2\n",
        "the network is another one than in the earlier run: ",
        "with \"rate\": 0.25 in layer 1, got 0.5"})
    EXPECT_THAT(warnings, HasSubstr(warning));
  const auto found = checkpoint::list_checkpoints(directory.path());
  ASSERT_NE(checkpoint::find_best(found), nullptr);
  EXPECT_EQ(checkpoint::find_best(found)->step, 12) << "the losses do not compare";
}

TEST(ResumeFrom, WarnsOfAnotherMetricOfTheBest) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit = saving_to(directory, 0, 6);
  fit.checkpoint.keep_best = MonitoredMetric{.name = "loss"};
  train(1, plain_network(), shuffled_data(), {}, fit);
  fit.checkpoint.keep_best = MonitoredMetric{.name = "accuracy"};
  fit.steps = 12;
  ::testing::internal::CaptureStderr();
  train(1, plain_network(), shuffled_data(), {}, fit);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      ::testing::AllOf(HasSubstr("the earlier run kept the checkpoint with the best loss, "),
                       HasSubstr("the one with the best accuracy is kept (--keep-best)")));
}

// The loss of the second training is larger than the best one of the first.
TEST(ResumeFrom, ResetsCallbacksAfterAnotherLoss) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit = saving_to(directory, 0, 12);
  const auto callbacks = [&] {
    fit.callbacks = {std::make_shared<EarlyStopping>(
                         EarlyStoppingOptions{.metric = {.name = "loss"}, .patience = 1}),
                     std::make_shared<ReduceOnPlateau>(
                         PlateauOptions{.metric = {.name = "loss"}, .patience = 1})};
  };
  callbacks();
  train(1, plain_network(), shuffled_data(), {}, fit);
  TrainerOptions options;
  options.loss = model::SparseCategoricalCrossentropy{.label_smoothing = 0.5F};
  fit.steps = 18;
  callbacks();
  const Outcome outcome = train(1, plain_network(), shuffled_data(), options, fit);
  EXPECT_EQ(outcome.history.end.steps, 18);
  EXPECT_EQ(outcome.history.end.stop_reason, "");
  EXPECT_EQ(outcome.history.epochs.back().learning_rate,
            outcome.history.epochs.front().learning_rate);
}

TEST(Fit, IsUnlimitedIfTheNumberOfStepsOverflows) {
  const Outcome outcome = train(1, plain_network(), shuffled_data(), {},
                                {.epochs = std::numeric_limits<std::int64_t>::max(), .steps = 4});
  EXPECT_EQ(outcome.steps.size(), 4U);
}

TEST(Checkpoints, AreSavedAtTheEndOfEachEpochAndOfTheTraining) {
  const checkpoint::ScratchDirectory directory;
  train(2, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 15));
  std::vector<std::int64_t> steps;
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory.path()))
    steps.push_back(info.step);
  EXPECT_THAT(steps, ::testing::ElementsAre(15, 12, 6));
}

class RaiseInValidation final : public Callback {
 public:
  void on_test_begin() override { std::raise(SIGTERM); }
};

TEST(Checkpoints, AreSavedOnASignalInValidationWhichIsRepeated) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit = saving_to(directory, 0, 0);
  fit.validation = small_data(200).batch(4);
  const History expected = train(1, dropout_network(), shuffled_data(), full_options(),
                                 [&] {
                                   FitOptions plain{.epochs = 3};
                                   plain.validation = fit.validation;
                                   return plain;
                                 }())
                               .history;
  FitOptions interrupted = fit;
  interrupted.signals = {SIGTERM};
  interrupted.callbacks = {std::make_shared<RaiseInValidation>()};
  const History first =
      train(1, dropout_network(), shuffled_data(), full_options(), interrupted).history;
  EXPECT_EQ(first.end.signal, SIGTERM);
  EXPECT_EQ(first.end.steps, 6);
  EXPECT_TRUE(first.epochs.empty());
  const History second = train(1, dropout_network(), shuffled_data(), full_options(), fit).history;
  ASSERT_EQ(second.epochs.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second.epochs[i].epoch, static_cast<std::int64_t>(i));
    EXPECT_EQ(second.epochs[i].validation->loss_sum, expected.epochs[i].validation->loss_sum);
  }
  EXPECT_EQ(second.end.parameter_hash, expected.end.parameter_hash);
}

TEST(Checkpoints, AreSavedOnASignalInTraining) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit = saving_to(directory, 0, 0);
  fit.callbacks = {std::make_shared<RaiseAfter>(8)};
  fit.signals = {SIGTERM};
  const Outcome left = train(2, plain_network(), shuffled_data(), {}, fit);
  EXPECT_EQ(left.history.end.steps, 9);
  EXPECT_EQ(checkpoint::list_checkpoints(directory.path()).front().step, 9);
  const Outcome straight = train(2, plain_network(), shuffled_data(), {}, {.epochs = 3});
  EXPECT_EQ(
      train(2, plain_network(), shuffled_data(), {}, saving_to(directory, 0, 0)).parameter_hash,
      straight.parameter_hash);
}

TEST(Checkpoints, ResumeANetworkWithAnotherName) {
  const auto named = [](const char* name) {
    model::Network network({16}, name);
    network.add(model::Dense({.units = 12}));
    network.add(model::ReLU());
    network.add(model::Dense({.units = kClasses}));
    return network;
  };
  const checkpoint::ScratchDirectory directory;
  train(1, named("mlp"), shuffled_data(), {}, saving_to(directory, 0, 8));
  const Outcome again = train(1, named("mlp:12"), shuffled_data(), {}, saving_to(directory, 0, 12));
  EXPECT_EQ(again.steps.size(), 4U);
  EXPECT_EQ(again.parameter_hash,
            train(1, named("mlp"), shuffled_data(), {}, {.epochs = 3, .steps = 12}).parameter_hash);
}

TEST(Checkpoints, StoreTheConfiguration) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit = saving_to(directory, 0, 2);
  fit.checkpoint.configuration = nlohmann::json::object({{"model", "plain"}});
  train(1, plain_network(), shuffled_data(), {}, fit);
  const auto path = directory.path() / "step-00000002" / checkpoint::kStateFile;
  const checkpoint::TrainingState state =
      checkpoint::parse_training_state(checkpoint::read_small_file(path), path.string());
  EXPECT_EQ((*state.configuration)["model"], "plain");
  EXPECT_EQ((*state.configuration)["records"], 203);
  EXPECT_EQ((*state.configuration)["network"]["description"],
            model::network_to_json(plain_network()));
  EXPECT_EQ((*state.configuration)["network"]["loss"], "sparse-categorical-crossentropy");
  EXPECT_EQ((*state.configuration)["network"]["label_smoothing"], 0.0);
  EXPECT_EQ(state.metrics.at("epoch_samples"), 80);
}

TEST(Checkpoints, DescribeTheModelForEvaluation) {
  const checkpoint::ScratchDirectory directory;
  const Outcome trained =
      train(2, normalized_network(), shuffled_data(), {}, saving_to(directory, 0, 0));
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 3);
  Trainer trainer(*strategy, normalized_network(), {.seed = 9});
  const checkpoint::RestoredCheckpoint restored = trainer.restore(directory.path());
  EXPECT_EQ(restored.state.step, 18);
  EXPECT_EQ(trainer.parameter_hash(), trained.parameter_hash);
  trainer.replicas().check_agreement(18);

  const checkpoint::RestoredCheckpoint earlier =
      trainer.restore(directory.path() / "step-00000012");
  EXPECT_EQ(earlier.state.step, 12);
  EXPECT_NE(trainer.parameter_hash(), trained.parameter_hash);
  trainer.replicas().check_agreement(12);
  EXPECT_THAT(error_of([&] { trainer.restore(directory.path() / "nothing"); }),
              HasSubstr("expected a complete checkpoint"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
