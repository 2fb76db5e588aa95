#include "strategy/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "device/error.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

using allreduce::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Records

/// Made-up samples that count how often each record was read, and spoil those they are told to.
class WatchedSource final : public data::RecordSource {
 public:
  explicit WatchedSource(std::int64_t records)
      : source_(small_data(records)), visits_(static_cast<std::size_t>(records)) {}

  const data::SampleSpec& spec() const override { return source_.spec(); }
  std::int64_t size() const override { return source_.size(); }
  std::string description() const override { return "watched samples"; }
  void read(std::int64_t id, data::Sample& sample) const override {
    source_.source().read(id, sample);
    ++visits_[static_cast<std::size_t>(id)];
    if (id == infinite) sample.features[0] = std::numeric_limits<float>::infinity();
    if (id == damaged)
      throw Error(ErrorCategory::data, "watched", "needed a whole record",
                  "record " + std::to_string(id) + " is damaged");
  }
  std::vector<int> visits() const { return {visits_.begin(), visits_.end()}; }

  std::int64_t infinite = -1;
  std::int64_t damaged = -1;

 private:
  data::Dataset source_;
  mutable std::vector<std::atomic<int>> visits_;
};

TEST(Trainer, VisitsEachRecordOnceAnEpoch) {
  for (const int replicas : {1, 3, 4}) {
    const auto source = std::make_shared<WatchedSource>(103);
    const Outcome outcome =
        train(replicas, plain_network(), data::Dataset::from_source(source).shuffle().batch(10), {}, {.epochs = 2});
    EXPECT_EQ(source->visits(), std::vector<int>(103, 2)) << replicas << " replicas";
    ASSERT_EQ(outcome.history.epochs.size(), 2U);
    EXPECT_EQ(outcome.history.epochs[0].samples, 103);
    EXPECT_EQ(outcome.history.epochs[1].metrics.samples, 103);
  }
}

TEST(Trainer, EpochMetricsAreTheSumsOfTheSteps) {
  const Outcome outcome = train(3, plain_network(), small_data().batch(40), {}, {.epochs = 1});
  double loss = 0;
  std::int64_t correct = 0;
  for (const StepLogs& step : outcome.steps) {
    loss += step.metrics.loss;
    correct += step.metrics.correct;
  }
  const model::MetricSums& epoch = outcome.history.epochs[0].metrics;
  EXPECT_NEAR(epoch.loss, loss, 1e-5 * loss);
  EXPECT_EQ(epoch.correct, correct);
  EXPECT_TRUE(epoch.has_accuracy);
}

// ---- Length

TEST(Trainer, EndsAtTheFirstOfEpochsAndSteps) {
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, {.epochs = 2, .steps = 100}).history.end.steps, 12);
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, {.epochs = 2, .steps = 7}).history.end.steps, 7);
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, {.epochs = 0, .steps = 8}).history.end.steps, 8);
}

TEST(Trainer, ReportsAnEpochThatWasNotFinished) {
  const History history = train(2, plain_network(), small_data().batch(40), {}, {.epochs = 2, .steps = 8}).history;
  ASSERT_EQ(history.epochs.size(), 2U);
  EXPECT_TRUE(history.epochs[0].complete);
  EXPECT_FALSE(history.epochs[1].complete);
  EXPECT_EQ(history.epochs[1].samples, 80);
}

TEST(Trainer, NeedsAnEnd) {
  EXPECT_EQ(error_of([] { train(1, plain_network(), small_data().batch(40), {}, {.epochs = 0}); }),
            "[fit] needed a number of epochs or of steps; both are 0");
}

// ---- Callbacks

class Diary final : public Callback {
 public:
  void on_train_begin(const TrainBegin& begin) override { note("train_begin " + std::to_string(begin.last_step)); }
  void on_train_end(const TrainEnd& end) override { note("train_end " + std::to_string(end.steps)); }
  void on_epoch_begin(std::int64_t epoch) override { note("epoch_begin " + std::to_string(epoch)); }
  void on_epoch_end(const EpochLogs& logs) override { note("epoch_end " + std::to_string(logs.epoch)); }
  void on_batch_begin(std::int64_t step) override { note("batch_begin " + std::to_string(step)); }
  void on_batch_end(const StepLogs& logs) override { note("batch_end " + std::to_string(logs.step)); }
  void on_test_begin() override { note("test_begin"); }
  void on_test_end(const model::MetricSums& metrics) override { note("test_end " + std::to_string(metrics.samples)); }
  std::vector<std::string> entries;

 private:
  void note(std::string entry) { entries.push_back(std::move(entry)); }
};

TEST(Trainer, CallsTheHooksInTheOrderOfKeras) {
  const auto diary = std::make_shared<Diary>();
  FitOptions fit{.epochs = 2, .validation = small_data(9).batch(4)};
  fit.callbacks = {diary};
  train(1, plain_network(), small_data(6).batch(4), {}, fit);
  EXPECT_THAT(diary->entries, ElementsAre("train_begin 4", "epoch_begin 0", "batch_begin 0", "batch_end 1",
                                          "batch_begin 1", "batch_end 2", "test_begin", "test_end 9", "epoch_end 0",
                                          "epoch_begin 1", "batch_begin 2", "batch_end 3", "batch_begin 3",
                                          "batch_end 4", "test_begin", "test_end 9", "epoch_end 1", "train_end 4"));
}

class StopAt final : public Callback {
 public:
  explicit StopAt(std::int64_t step) : step_(step) {}
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == step_) request_stop();
  }

 private:
  std::int64_t step_;
};

class StopAfterEpoch final : public Callback {
 public:
  void on_epoch_end(const EpochLogs& logs) override {
    if (logs.epoch == 1) request_stop();
  }
  bool may_stop_at_batches() const override { return false; }
};

TEST(Trainer, StopsAfterTheStepInWhichACallbackAsks) {
  FitOptions fit{.epochs = 3};
  fit.callbacks = {std::make_shared<StopAt>(4)};
  const History history = train(2, plain_network(), small_data().batch(40), {}, fit).history;
  EXPECT_EQ(history.end.steps, 4);
  EXPECT_TRUE(history.end.stopped);
}

TEST(Trainer, StopsAfterTheEpochInWhichACallbackAsks) {
  FitOptions fit{.epochs = 5};
  fit.callbacks = {std::make_shared<StopAfterEpoch>()};
  EXPECT_EQ(train(1, plain_network(), small_data().batch(40), {}, fit).history.end.steps, 12);
}

class RaiseAt final : public Callback {
 public:
  RaiseAt(int signal, std::int64_t step) : signal_(signal), step_(step) {}
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == step_) std::raise(signal_);
  }

 private:
  int signal_;
  std::int64_t step_;
};

TEST(Trainer, LeavesOneStepAfterASignal) {
  for (const int signal : {SIGTERM, SIGINT}) {
    FitOptions fit{.epochs = 3};
    fit.callbacks = {std::make_shared<RaiseAt>(signal, 4)};
    const History history = train(2, plain_network(), small_data().batch(40), {}, fit).history;
    EXPECT_EQ(history.end.steps, 5);
    EXPECT_EQ(history.end.signal, signal);
  }
}

// ---- Evaluation and prediction

TEST(Trainer, EvaluatesExactlyOnAnyNumberOfReplicas) {
  model::MetricSums expected;
  for (const int replicas : {1, 2, 3, 4}) {
    Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    const model::MetricSums sums = trainer.evaluate(small_data(1003).batch(64));
    EXPECT_EQ(sums.samples, 1003);
    EXPECT_TRUE(sums.has_accuracy);
    if (replicas == 1) expected = sums;
    EXPECT_EQ(sums.correct, expected.correct);
    EXPECT_EQ(sums.correct_top5, 1003);  // of 4 classes
    EXPECT_NEAR(sums.loss, expected.loss, 1e-6 * expected.loss);
  }
}

TEST(Trainer, ValidationIsAnEvaluationOfTheEpochsModel) {
  Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  Trainer trainer(*strategy, plain_network());
  const data::Dataset validation = small_data(77).batch(10);
  const History history = trainer.fit(small_data().batch(40), {.epochs = 1, .validation = validation});
  EXPECT_EQ(history.epochs[0].validation->loss, trainer.evaluate(validation).loss);
}

TEST(Trainer, EvaluatesDataThatLackAClassOfTheModel) {
  Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 1);
  Trainer trainer(*strategy, plain_network());
  EXPECT_EQ(trainer.evaluate(data::Dataset::synthetic({16}, kClasses - 1, 20).batch(8)).samples, 20);
  EXPECT_THAT(error_of([&] { trainer.evaluate(data::Dataset::synthetic({16}, kClasses + 1, 20).batch(8)); }),
              HasSubstr("needed 4 classes, the outputs of model plain; got 5 classes"));
}

TEST(Trainer, PredictsInTheOrderOfTheRecords) {
  std::vector<float> expected;
  for (const int replicas : {1, 3}) {
    Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, plain_network());
    std::vector<std::int64_t> ids;
    std::vector<float> outputs;
    trainer.predict(small_data(25).batch(8), [&](const Predictions& predictions) {
      EXPECT_EQ(predictions.width, kClasses);
      ids.insert(ids.end(), predictions.record_ids.begin(), predictions.record_ids.end());
      outputs.insert(outputs.end(), predictions.outputs.begin(), predictions.outputs.end());
    });
    std::vector<std::int64_t> in_order(25);
    std::iota(in_order.begin(), in_order.end(), 0);
    EXPECT_EQ(ids, in_order);
    ASSERT_EQ(outputs.size(), 25U * kClasses);
    if (replicas == 1) expected = outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) EXPECT_NEAR(outputs[i], expected[i], 1e-6);
  }
}

TEST(Trainer, ValidationDoesNotChangeTheTraining) {
  for (const auto network : {plain_network, normalized_network}) {
    FitOptions fit{.epochs = 3};
    const Outcome without = train(2, network(), small_data().batch(40), {}, fit);
    fit.validation = small_data(50).batch(10);
    const Outcome with = train(2, network(), small_data().batch(40), {}, fit);
    EXPECT_EQ(with.parameter_hash, without.parameter_hash);
    EXPECT_EQ(with.buffers, without.buffers);
  }
}

// ---- Trouble

TEST(Trainer, SkipsAStepWithoutAFiniteLossOnAllReplicas) {
  const auto source = std::make_shared<WatchedSource>(40);
  source->infinite = 25;  // in step 2 of 4, on the second of two replicas
  const data::Dataset dataset = data::Dataset::from_source(source).batch(10);
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train(2, normalized_network(), dataset, {}, {.epochs = 1});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: step 3 skipped: non-finite loss on rank 0 (replica 1)\n");
  ASSERT_EQ(outcome.steps.size(), 4U);
  EXPECT_TRUE(outcome.steps[2].skipped);
  EXPECT_FALSE(outcome.steps[3].skipped);
  const EpochLogs& epoch = outcome.history.epochs[0];
  EXPECT_EQ(epoch.samples, 40);
  EXPECT_EQ(epoch.skipped_samples, 10);
  EXPECT_EQ(epoch.metrics.samples, 30);
  EXPECT_TRUE(std::isfinite(epoch.metrics.loss));
  for (const float value : outcome.parameters) ASSERT_TRUE(std::isfinite(value));
  for (const float value : outcome.buffers) ASSERT_TRUE(std::isfinite(value));
}

TEST(Trainer, EndsWhereNoStepHasAFiniteLoss) {
  const auto source = std::make_shared<WatchedSource>(1);
  source->infinite = 0;
  ::testing::internal::CaptureStderr();
  const std::string error =
      error_of([&] { train(1, plain_network(), data::Dataset::from_source(source).batch(1), {}, {.epochs = 1000}); });
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(error,
            "[train] needed a finite loss; a smaller learning rate, warm-up or clipping may help; 100 steps in a row "
            "were skipped, the last one (100) "
            "for a non-finite loss on rank 0");
}

TEST(Trainer, GivesTheErrorOfADamagedRecord) {
  const auto source = std::make_shared<WatchedSource>(40);
  source->damaged = 17;
  EXPECT_EQ(
      error_of([&] { train(3, plain_network(), data::Dataset::from_source(source).batch(10), {}, {.epochs = 1}); }),
      "[watched] needed a whole record; record 17 is damaged");
}

class Thrower final : public Callback {
 public:
  void on_batch_end(const StepLogs&) override { throw std::runtime_error("the callback has had enough"); }
};

TEST(Trainer, GivesTheErrorOfACallback) {
  FitOptions fit;
  fit.callbacks = {std::make_shared<Thrower>()};
  EXPECT_EQ(error_of([&] { train(2, plain_network(), small_data().batch(40), {}, fit); }),
            "the callback has had enough");
}

TEST(Trainer, RefusesDataThatDoNotFit) {
  const auto error = [](const data::Dataset& dataset, const TrainerOptions& options = {}) {
    return error_of([&] { train(1, plain_network(), dataset, options); });
  };
  EXPECT_EQ(error(data::Dataset::synthetic({4, 4, 1}, kClasses, 10).batch(2)),
            "[10 synthetic samples of 4x4x1] needed samples of shape [16], the input of model plain; got [4, 4, 1]");
  EXPECT_EQ(error(data::Dataset::synthetic({16}, 7, 10).batch(2)),
            "[10 synthetic samples of 16] needed 4 classes, the outputs of model plain; got 7 classes");
  EXPECT_THAT(error(small_data(10)), HasSubstr("[data] needed a data set cut into batches"));
  EXPECT_THAT(error(small_data(10).batch(2), {.loss = model::MeanSquaredError{}}),
              HasSubstr("needs 4 targets a sample"));
}

TEST(Trainer, RefusesValidationDataOfAnotherShape) {
  FitOptions fit;
  fit.validation = data::Dataset::synthetic({15}, kClasses, 10).batch(2);
  EXPECT_THAT(error_of([&] { train(1, plain_network(), small_data().batch(40), {}, fit); }),
              HasSubstr("needed samples of shape [16]"));
}

TEST(Trainer, RefusesOptionsThatMakeNoSense) {
  EXPECT_THAT(error_of([] { train(1, plain_network(), small_data().batch(40), {.accumulate = 0}); }),
              HasSubstr("[accumulate] needed at least 1"));
  EXPECT_THAT(error_of([] { train(1, plain_network(), small_data().batch(40), {.clip_norm = -1}); }),
              HasSubstr("[clip-norm]"));
  EXPECT_THAT(
      error_of([] { train(1, plain_network(), small_data().batch(40), {.rate_scaling = RateScaling::linear}); }),
      HasSubstr("[lr-scaling] needed the global batch that the learning rate is meant for"));
}

TEST(TrainerOptions, ScaleTheRateWithTheBatch) {
  TrainerOptions options;
  options.schedule.peak = 0.1F;
  options.base_batch = 64;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.1F);
  options.rate_scaling = RateScaling::linear;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.4F);
  options.rate_scaling = RateScaling::sqrt;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.2F);
  EXPECT_EQ(effective_schedule(options, 256, 10).total_steps, 10);
}

TEST(TrainerOptions, NameTheWaysToScaleTheRate) {
  EXPECT_EQ(parse_rate_scaling("sqrt"), RateScaling::sqrt);
  EXPECT_EQ(error_of([] { parse_rate_scaling("cubic"); }), "[lr-scaling] needed none, linear or sqrt; got \"cubic\"");
}

// ---- Replicas

TEST(LocalReplicas, AreCheckedForAgreement) {
  Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 3);
  Trainer trainer(*strategy, plain_network());
  trainer.replicas().check_agreement(0);
  trainer.replicas()[2].model().parameters()[5] += 1e-6F;
  EXPECT_EQ(error_of([&] { trainer.replicas().check_agreement(7); }),
            "[replicas] needed the same parameters on all replicas after 7 steps; replicas that differ from replica 0: "
            "2 (rank 0)");
}

TEST(LocalReplicas, TakeMovingStatisticsAsTheMeanWeightedBySamples) {
  Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 2);
  Trainer trainer(*strategy, normalized_network());
  LocalReplicas& replicas = trainer.replicas();
  // 3 samples: one on the first replica, two on the second.
  const auto stream = small_data(3).batch(3).stream({.last_step = 1, .replicas = 2, .local_replicas = 2});
  std::vector<data::Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  replicas.run([&](Replica& replica, int local) {
    replica.train_step(parts[static_cast<std::size_t>(local)], {.learning_rate = 0.1F});
  });
  const auto copy = [&](int local) {
    const auto buffers = replicas[local].model().buffers();
    return std::vector<float>(buffers.begin(), buffers.end());
  };
  const std::vector<float> first = copy(0);
  const std::vector<float> second = copy(1);
  ASSERT_NE(first, second);

  replicas.run([](Replica& replica, int) { replica.install_mean_statistics(); });
  const std::vector<float> mean = copy(0);
  EXPECT_EQ(mean, copy(1));
  for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(mean[i], (first[i] + 2 * second[i]) / 3, 1e-6);
  replicas.run([](Replica& replica, int) { replica.restore_statistics(); });
  EXPECT_EQ(copy(0), first);
  EXPECT_EQ(copy(1), second);

  replicas.run([](Replica& replica, int) { replica.adopt_mean_statistics(); });
  EXPECT_EQ(copy(0), mean);
  EXPECT_EQ(copy(1), mean);
}

}  // namespace
}  // namespace lockstep::strategy
