// Frozen parameters are not trained, stored or reduced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/strategy/replica/replica.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using Named = std::map<std::string, std::vector<float>>;

Named by_name(const model::ParameterTable& table, std::span<const float> flat) {
  Named values;
  for (const model::ParameterInfo& entry : table.entries()) {
    const auto slice = model::ParameterTable::slice(flat, entry);
    values[entry.name].assign(slice.begin(), slice.end());
  }
  return values;
}

Named parameters_of(Trainer& trainer) {
  model::CompiledModel& model = trainer.replicas()[0].model();
  return by_name(model.parameter_table(), model.parameters());
}

/// Restores parameters to their initial values after each step.
class Restores final : public Callback {
 public:
  Restores(Trainer& trainer, std::vector<std::string> names)
      : trainer_(trainer), names_(std::move(names)), start_(parameters_of(trainer)) {}
  void on_batch_end(const StepLogs& /*logs*/) override {
    LocalReplicas& replicas = trainer_.replicas();
    for (int local = 0; local < replicas.strategy().local_replicas(); ++local)
      for (const std::string& name : names_) {
        model::CompiledModel& model = replicas[local].model();
        const model::ParameterInfo* entry = model.parameter_table().find(name);
        std::ranges::copy(start_.at(name),
                          model::ParameterTable::slice(model.parameters(), *entry).begin());
      }
  }

 private:
  Trainer& trainer_;
  std::vector<std::string> names_;
  Named start_;
};

TrainerOptions freezing(std::vector<std::string> patterns) {
  return {.optimizer = model::Adam{.weight_decay = 0.1F},
          .schedule = {.peak = 0.01F},
          .freeze = std::move(patterns)};
}

TEST(Freezing, IsTrainingThatIgnoresTheGradient) {
  struct Case {
    std::vector<std::string> patterns;
    std::vector<std::string> frozen;
  };
  for (const int replicas : {1, 3})
    for (const Case& layers :
         {Case{{"dense/*"}, {"dense/kernel", "dense/bias"}},
          Case{{"dense_1/*"}, {"dense_1/kernel", "dense_1/bias"}},
          Case{{"*/kernel", "dense_1/b*"}, {"dense/kernel", "dense_1/kernel", "dense_1/bias"}}}) {
      SCOPED_TRACE(layers.patterns.front());
      job::Session session(0, nullptr, {.quiet = true});
      const auto strategy = local_strategy(session, replicas);
      Trainer trainer(*strategy, dropout_network(), freezing(layers.patterns));
      const Named start = parameters_of(trainer);
      Replica& replica = trainer.replicas()[0];
      Trainer whole(*strategy, dropout_network(), freezing({}));
      EXPECT_LT(replica.buckets().buckets().back().end,
                whole.replicas()[0].buckets().buckets().back().end);
      EXPECT_EQ(replica.optimizer().slot("m").size(), replica.model().gradients().size());
      EXPECT_EQ(trainer.parameter_hash(), whole.parameter_hash()) << "over all parameters";

      trainer.fit(shuffled_data(), {.epochs = 2, .progress = false});
      FitOptions restoring{.epochs = 2, .progress = false};
      restoring.callbacks.push_back(std::make_shared<Restores>(whole, layers.frozen));
      whole.fit(shuffled_data(), restoring);
      const Named expected = parameters_of(whole);
      for (const auto& [name, values] : parameters_of(trainer))
        if (std::ranges::count(layers.frozen, name) > 0)
          EXPECT_EQ(values, start.at(name)) << name;
        else
          EXPECT_THAT(values, Pointwise(FloatNear(1e-4F), expected.at(name))) << name;
    }
}

// With moving statistics 0 and 1 and almost no epsilon, a frozen normalization changes nothing.
TEST(Freezing, LetsNormalizationUseItsMovingStatistics) {
  model::Network network({16}, "normalized");
  network.add(model::Dense({.units = 12}));
  network.add(model::BatchNormalization({.momentum = 0.5F, .epsilon = 1e-12F}));
  network.add(model::ReLU());
  network.add(model::Dense({.units = kClasses}));
  TrainerOptions options = freezing({"batch_normalization/*"});
  const Outcome expected = train(1, plain_network(), shuffled_data(), freezing({}), {.epochs = 2});
  const std::vector<float> statistics =
      train(1, network, shuffled_data(), options, {.epochs = 1, .steps = 1}).buffers;
  for (const int replicas : {1, 3})
    for (const NormalizationScope::Kind scope :
         {NormalizationScope::Kind::local, NormalizationScope::Kind::sync}) {
      options.normalization.kind = scope;
      const Outcome outcome = train(replicas, network, shuffled_data(), options, {.epochs = 2});
      EXPECT_THAT(outcome.losses, Pointwise(::testing::DoubleNear(1e-4), expected.losses));
      EXPECT_EQ(outcome.buffers, statistics) << "not even by their mean over the replicas";
      EXPECT_EQ(outcome.buffers.front(), 0.0F);
    }
}

TEST(Freezing, ResumesOnlyWithTheSameFrozenParameters) {
  for (const int replicas : {1, 3}) {
    const auto train_frozen = [&](std::vector<std::string> patterns, const FitOptions& fit,
                                  const model::OptimizerOptions& optimizer = model::Adam{}) {
      TrainerOptions options = freezing(std::move(patterns));
      options.optimizer = optimizer;
      return train(replicas, normalized_network(), shuffled_data(), options, fit);
    };
    const checkpoint::ScratchDirectory directory;
    const auto saving = [&](std::int64_t steps) {
      FitOptions fit{.epochs = 2, .steps = steps};
      fit.checkpoint.directory = directory.path();
      fit.checkpoint.save_every = 5;
      return fit;
    };
    FitOptions straight = saving(0);
    const checkpoint::ScratchDirectory other;
    straight.checkpoint.directory = other.path();
    const Outcome expected = train_frozen({"dense/*"}, straight);
    train_frozen({"dense/*"}, saving(5));
    EXPECT_THAT(error_of([&] { train_frozen({}, saving(0)); }),
                HasSubstr("with dense/bias, got dense/bias that is trained; use another "
                          "--checkpoint-dir to start over, with --init-from "));
    EXPECT_THAT(error_of([&] {
                  train_frozen({"dense/*", "dense_1/bias"}, saving(0));
                }),
                HasSubstr("without dense_1/bias, got dense_1/bias that is frozen"));
    EXPECT_EQ(train_frozen({"dense/*"}, saving(0)).parameter_hash, expected.parameter_hash);
  }
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.steps = 3};
  fit.checkpoint.directory = directory.path();
  const TrainerOptions plain{.optimizer = model::Sgd{}, .freeze = {"dense/kernel"}};
  train(1, plain_network(), shuffled_data(), plain, fit);
  fit.steps = 4;
  EXPECT_THAT(error_of([&] {
                train(1, plain_network(), shuffled_data(), {.optimizer = model::Sgd{}}, fit);
              }),
              HasSubstr("expected the frozen parameters of "))
      << "also without slots";
}

TEST(ParameterGroups, FollowTheScheduleWithTheirOwnPeakAndDecay) {
  TrainerOptions options{.optimizer = model::Sgd{.weight_decay = 0.5F},
                         .schedule = {.peak = 0.1F, .warmup_steps = 4}};
  const model::Network network = prepared(plain_network(), options);
  EXPECT_EQ(network.trained().find("dense/kernel")->group(), model::UpdateGroup{});
  options.groups = {{.pattern = "dense/*", .learning_rate = 0.2F, .weight_decay = 0.0F},
                    {.pattern = "*/bias", .learning_rate = 0.0F}};
  options.freeze = {"dense_1/kernel"};
  for (const int replicas : {1, 2}) {
    const Outcome outcome =
        train(replicas, plain_network(), shuffled_data(), options, {.steps = 3});
    TrainerOptions plain = options;
    plain.groups.clear();
    plain.optimizer = model::Sgd{.learning_rate = 0.2F};
    plain.schedule.peak = model::Schedule{}.peak;
    plain.freeze = {"dense_1/kernel", "*/bias"};
    // Two trainings of this parameter match: with a group, and with its options for all parameters.
    EXPECT_THAT(
        outcome.losses,
        Pointwise(::testing::DoubleNear(1e-6),
                  train(replicas, plain_network(), shuffled_data(), plain, {.steps = 3}).losses));
  }
  EXPECT_EQ(to_string(options.groups[0]), "dense/*:lr=0.2,decay=0");
  EXPECT_EQ(to_string(options.groups[1]), "*/bias:lr=0");
  options.groups = {{.pattern = "dens/*", .learning_rate = 0.2F}};
  EXPECT_THAT(error_of([&] { prepared(plain_network(), options); }),
              HasSubstr("[group] expected a pattern of parameter names, which are "));
  options.groups = {{.pattern = "dense/*", .learning_rate = -1.0F}};
  EXPECT_EQ(error_of([&] { prepared(plain_network(), options); }),
            "[group] expected a learning rate and a weight decay of 0 or more, got dense/*:lr=-1");
}

/// Computes the average of the parameters after each step, in double.
class Averages final : public Callback {
 public:
  Averages(Trainer& trainer, double decay) : trainer_(trainer), decay_(decay) {}
  void on_batch_end(const StepLogs& /*logs*/) override {
    for (const auto& [name, values] : parameters_of(trainer_)) {
      std::vector<double>& average = averages[name];
      if (average.empty()) average.assign(values.begin(), values.end());
      for (std::size_t i = 0; i < values.size(); ++i)
        average[i] = decay_ * average[i] + (1 - decay_) * static_cast<double>(values[i]);
    }
  }
  std::map<std::string, std::vector<double>> averages;

 private:
  Trainer& trainer_;
  double decay_;
};

TEST(MovingAverage, IsUsedByEvaluation) {
  for (const int replicas : {1, 3}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    TrainerOptions options = freezing({"dense/bias"});
    Trainer plain(*strategy, plain_network(), options);
    options.ema = 0.75F;
    Trainer trainer(*strategy, plain_network(), options);
    EXPECT_EQ(trainer.evaluate(small_data().batch(40)).loss_sum,
              plain.evaluate(small_data().batch(40)).loss_sum)
        << "before the first update";
    const auto recorder = std::make_shared<Averages>(trainer, 0.75);
    FitOptions fit{.steps = 5, .progress = false};
    fit.validation = small_data().batch(40);
    plain.fit(shuffled_data(), fit);
    fit.callbacks.push_back(recorder);
    const History history = trainer.fit(shuffled_data(), fit);
    EXPECT_EQ(trainer.parameter_hash(), plain.parameter_hash()) << "training goes on without it";

    // The parameters replaced by their averages, in a model that has none.
    const double raw = plain.evaluate(small_data().batch(40)).loss_sum;
    for (int local = 0; local < replicas; ++local)
      for (const auto& [name, values] : recorder->averages) {
        model::CompiledModel& model = plain.replicas()[local].model();
        const auto into =
            model::ParameterTable::slice(model.parameters(), *model.parameter_table().find(name));
        std::ranges::transform(values, into.begin(),
                               [](double value) { return static_cast<float>(value); });
      }
    const double expected = plain.evaluate(small_data().batch(40)).loss_sum;
    EXPECT_GT(std::abs(expected - raw), 1e-2);
    EXPECT_NEAR(trainer.evaluate(small_data().batch(40)).loss_sum, expected, 1e-3);
    EXPECT_NEAR(history.epochs.back().validation->loss_sum, expected, 1e-3);
  }
}

TEST(MovingAverage, IsInCheckpointsAndResumesExactly) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  const checkpoint::ScratchDirectory straight;
  const checkpoint::ScratchDirectory directory;
  const auto loss_after = [&](const checkpoint::ScratchDirectory& where, std::int64_t steps,
                              float ema) {
    TrainerOptions options = freezing({});
    options.ema = ema;
    Trainer trainer(*strategy, plain_network(), options);
    FitOptions fit{.epochs = 2, .steps = steps, .progress = false};
    fit.checkpoint.directory = where.path();
    trainer.fit(shuffled_data(), fit);
    return trainer.evaluate(small_data().batch(40)).loss_sum;
  };
  const double expected = loss_after(straight, 9, 0.9F);
  loss_after(directory, 4, 0.9F);
  EXPECT_EQ(loss_after(directory, 9, 0.9F), expected);
  Trainer reader(*strategy, plain_network());
  reader.restore(directory.path());
  EXPECT_EQ(reader.evaluate(small_data().batch(40)).loss_sum, expected);
  EXPECT_THAT(error_of([&] { loss_after(directory, 12, 0); }),
              HasSubstr("expected a checkpoint without a moving average of the parameters, got one "
                        "with; use another --checkpoint-dir to start over, with --init-from "));
  EXPECT_EQ(error_of([&] { Trainer(*local_strategy(session, 2), plain_network(), {.ema = 1}); }),
            "[ema] expected a decay from 0 to below 1, got 1");
}

TEST(Freezing, RejectsPatternsThatMatchNothingOrEverything) {
  const auto error = [](std::vector<std::string> patterns) {
    return error_of([&] {
      train(1, plain_network(), shuffled_data(), freezing(std::move(patterns)), {.steps = 1});
    });
  };
  EXPECT_EQ(error({"dense/*", "dense/kernl"}),
            "[freeze] expected a pattern of parameter names, which are dense_1/kernel, "
            "dense_1/bias, dense/kernel, dense/bias, got \"dense/kernl\" (did you mean "
            "dense/kernel?)");
  EXPECT_EQ(error({"*/kernel", "*/bias"}),
            "[freeze] expected patterns that leave parameters to train, got */kernel, */bias, "
            "which freeze all 4");
}

}  // namespace
}  // namespace lockstep::inline v0::train
