// Callbacks that control a training: their decisions are the same for any number of replicas, and
// in a resumed training.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/train/callbacks/csv_log.h"
#include "lockstep/train/callbacks/early_stopping.h"
#include "lockstep/train/callbacks/json_events.h"
#include "lockstep/train/callbacks/plateau.h"
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

/// An epoch of 10 steps with this validation loss.
EpochLogs epoch_with(std::int64_t epoch, double validation_loss) {
  EpochLogs logs;
  logs.epoch = epoch;
  logs.step = 10 * (epoch + 1);
  logs.validation = model::MetricSums{.loss_sum = validation_loss, .samples = 1};
  return logs;
}

TrainBegin begin_with_validation() {
  TrainBegin begin;
  begin.known_metrics = metric_names(10, true);
  return begin;
}

TEST(EarlyStopping, StopsWhereKerasDoes) {
  struct Case {
    const char* options;
    std::vector<double> values;
    std::size_t stops_after;  // values; 0: never
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Case& one : {Case{"validation_loss:patience=2", {3, 2, 2.5, 2, 1}, 4},
                          Case{"validation_loss:patience=2", {3, 2, 2.5, 1.5, 2, 1}, 0},
                          Case{"validation_loss:patience=2,min_delta=0.5", {3, 2.75, 2.5, 1}, 3},
                          Case{"validation_loss:max,patience=1", {1, 2, 1.5}, 3},
                          Case{"validation_loss:patience=2", {nan, nan, 1}, 2},
                          Case{"validation_loss:patience=2", {nan, 1, nan, 0.5}, 0}}) {
    EarlyStopping stopping(parse_early_stopping(one.options));
    stopping.on_train_begin(begin_with_validation());
    std::size_t stopped = 0;
    for (std::size_t i = 0; i < one.values.size() && stopped == 0; ++i) {
      stopping.on_epoch_end(epoch_with(static_cast<std::int64_t>(i), one.values[i]));
      if (stopping.stop_requested()) stopped = i + 1;
    }
    EXPECT_EQ(stopped, one.stops_after) << one.options << " " << one.values.back();
  }
}

TEST(Plateau, ReducesTheRateAfterPatienceAndCooldown) {
  ReduceOnPlateau plateau(
      parse_plateau("validation_loss:factor=0.5,patience=1,cooldown=1,min_lr=0.2"));
  plateau.on_train_begin(begin_with_validation());
  std::vector<float> rates;
  for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
    plateau.on_epoch_end(epoch_with(epoch, 1));
    rates.push_back(plateau.learning_rate(0, 1));
  }
  EXPECT_THAT(rates, ElementsAre(1, 0.5F, 0.5F, 0.25F, 0.25F, 0.2F));
  EXPECT_EQ(plateau.learning_rate(0, 0.125F), 0.125F) << "the schedule's rate, below the bound";
}

TEST(Monitored, ReportsErrors) {
  const auto names = metric_names(10, false);
  const auto error = [&](const char* text) {
    return error_of([&] { parse_keep_best(text).check("keep-best", names); });
  };
  EXPECT_EQ(error("accuracy"), "");
  EXPECT_EQ(error("top5"), "");
  EXPECT_EQ(error("los"),
            "[keep-best] expected loss, accuracy or top5_accuracy, got \"los\" (did you mean "
            "loss?)");
  EXPECT_EQ(error("validation_loss"),
            "[keep-best] expected validation data for validation_loss; there are none");
  EXPECT_THAT(metric_names(10, true, {"accuracy", "f1"}),
              ElementsAre("loss", "accuracy", "top5_accuracy", "f1", "validation_loss",
                          "validation_accuracy", "validation_top5_accuracy", "validation_f1"))
      << "each once, as the columns of a table";
  EXPECT_THAT(metric_names(6, false), ElementsAre("loss", "accuracy", "top5_accuracy"));
  EXPECT_THAT(metric_names(5, false), ElementsAre("loss", "accuracy")) << "top 5 of 5 is always 1";
  EXPECT_THAT(error_of([] {
                const std::vector<std::string> of_output = {"loss", "kind_accuracy"};
                parse_keep_best("kind:max").check("keep-best", of_output);
              }),
              HasSubstr("got \"kind\""));
  const std::vector<std::string> others = {"score"};
  EXPECT_TRUE(MonitoredMetric{.name = "validation_top3"}.improves(2, 1));
  EXPECT_FALSE(MonitoredMetric{.name = "validation_rmse"}.improves(2, 1));
  EXPECT_THAT(error_of([&] { MonitoredMetric{.name = "score"}.check("keep-best", others); }),
              HasSubstr("expected score:max or score:min"));
}

/// At most nine epochs of 6 steps; only the first one improves.
FitOptions controlled_fit(const checkpoint::ScratchDirectory& directory, std::int64_t steps) {
  FitOptions fit{.epochs = 9, .steps = steps, .validation = small_data(20).batch(8)};
  fit.checkpoint.directory = directory.path();
  fit.callbacks = {
      std::make_shared<EarlyStopping>(EarlyStoppingOptions{.patience = 3, .min_delta = 1e9}),
      std::make_shared<ReduceOnPlateau>(
          PlateauOptions{.factor = 0.5, .patience = 2, .min_delta = 1e9})};
  return fit;
}

TEST(Control, IsTheSameOnAllReplicasAndAfterAnInterruption) {
  const TrainerOptions options{.schedule = {.peak = 0.25F}};
  for (const int replicas : {1, 3}) {
    const auto fit = [&](const checkpoint::ScratchDirectory& directory, std::int64_t steps) {
      return train(replicas, dropout_network(), shuffled_data(), options,
                   controlled_fit(directory, steps));
    };
    const checkpoint::ScratchDirectory straight;
    const Outcome expected = fit(straight, 0);
    EXPECT_EQ(expected.history.end.steps, 24);
    EXPECT_TRUE(expected.history.end.stopped);
    EXPECT_THAT(expected.history.end.stop_reason,
                HasSubstr("validation_loss has not improved since step 6, when it was "));
    EXPECT_EQ(expected.steps[17].learning_rate, 0.25F);
    EXPECT_EQ(expected.steps[18].learning_rate, 0.125F);
    EXPECT_EQ(expected.history.epochs[3].learning_rate, 0.125F);

    const checkpoint::ScratchDirectory directory;
    fit(directory, 14);  // during the patience
    const Outcome resumed = fit(directory, 0);
    EXPECT_EQ(resumed.history.end.steps, 24);
    EXPECT_EQ(resumed.steps.back().learning_rate, 0.125F);
    EXPECT_EQ(resumed.parameter_hash, expected.parameter_hash);
    const Outcome again = fit(directory, 0);
    EXPECT_TRUE(again.steps.empty()) << "its patience is exhausted";
    EXPECT_TRUE(again.history.end.stopped);
  }
}

TEST(Control, KeepsTheBestAndTheNewestCheckpoint) {
  const checkpoint::ScratchDirectory directory;
  const auto fit = [&](std::int64_t epochs) {
    FitOptions options{.epochs = epochs};
    options.checkpoint = {.directory = directory.path(),
                          .save_every = 1000,
                          .keep = 1,
                          .keep_best = MonitoredMetric{.name = "loss", .direction = Direction::max},
                          .restore_best = true};
    return train(2, plain_network(), shuffled_data(), {}, options);
  };
  const Outcome one = train(2, plain_network(), shuffled_data(), {}, {.epochs = 1});
  fit(2);
  const Outcome kept = fit(4);  // resumes with the best value
  std::vector<std::int64_t> steps;
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory.path()))
    steps.push_back(info.step);
  EXPECT_THAT(steps, ElementsAre(24, 6)) << "the loss was the largest in the first epoch";
  EXPECT_EQ(checkpoint::resolve_best(directory.path().native() + ":best").filename(),
            "step-00000006");
  EXPECT_EQ(kept.parameter_hash, one.parameter_hash) << "restore_best";

  std::filesystem::remove_all(directory.path() / "step-00000006");
  ::testing::internal::CaptureStderr();
  fit(5);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("has no checkpoint with the best loss, "));
  EXPECT_EQ(checkpoint::resolve_best(directory.path().native() + ":best").filename(),
            "step-00000030");
}

/// Ends the training after a step.
class StopAfter final : public Callback {
 public:
  explicit StopAfter(std::int64_t step) : step_(step) {}
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == step_) request_stop();
  }

 private:
  std::int64_t step_;
};

/// The number of samples.
class SampleCount final : public model::Metric {
 public:
  std::string name() const override { return "count"; }
  std::size_t sums() const override { return 1; }
  void add(std::span<const float> /*outputs*/, const model::Targets& /*targets*/,
           std::int64_t samples, std::vector<double>& sums) const override {
    sums[0] += static_cast<double>(samples);
  }
  std::vector<model::MetricValue> values(std::span<const double> sums) const override {
    return {{.name = name(), .values = {sums[0]}}};
  }
};

TEST(KeepBest, IgnoresTrainingMetricsOfAnIncompleteEpoch) {
  TrainerOptions trainer;
  trainer.metrics = {std::make_shared<SampleCount>()};
  for (const int replicas : {1, 2, 3}) {
    for (const bool by_callback : {false, true}) {
      const checkpoint::ScratchDirectory directory;
      const auto fit = [&](std::int64_t last) {
        FitOptions options{.epochs = 3, .steps = by_callback ? 0 : last};
        options.checkpoint = {
            .directory = directory.path(),
            .keep = 1,
            .keep_best = MonitoredMetric{.name = "count", .direction = Direction::min}};
        if (by_callback && last > 0) options.callbacks = {std::make_shared<StopAfter>(last)};
        const Outcome outcome = train(replicas, plain_network(), shuffled_data(), trainer, options);
        EXPECT_EQ(checkpoint::resolve_best(directory.path().native() + ":best").filename(),
                  "step-00000006")
            << replicas << by_callback << last;
        return outcome.history.epochs;
      };
      const std::vector<EpochLogs> cut = fit(8);
      ASSERT_EQ(cut.size(), 2U);
      EXPECT_FALSE(cut[1].complete);
      EXPECT_EQ(cut[0].metric("count"), 203);
      EXPECT_EQ(cut[1].metric("count"), 80) << "less, if it counted";
      EXPECT_EQ(fit(0).front().metric("count"), 203) << "resumed";
    }
  }
}

TEST(KeepBest, IncludesTheValidationAtTheEndOfATraining) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 3, .steps = 8, .validation = small_data(20).batch(8)};
  fit.checkpoint = {.directory = directory.path(),
                    .keep_best = MonitoredMetric{.name = "validation_loss"}};
  const Outcome cut = train(2, plain_network(), shuffled_data(), {}, fit);
  const auto& epochs = cut.history.epochs;
  ASSERT_EQ(epochs.size(), 2U);
  const bool is_better = epochs[1].metric("validation_loss") < epochs[0].metric("validation_loss");
  EXPECT_EQ(checkpoint::resolve_best(directory.path().native() + ":best").filename(),
            is_better ? "step-00000008" : "step-00000006");
}

TEST(MetricMonitor, CountsWholeEpochsAndValidations) {
  const auto logs_of = [](bool complete, double loss, double validation_loss, std::int64_t step) {
    EpochLogs logs = epoch_with(0, validation_loss);
    logs.step = step;
    logs.complete = complete;
    logs.metrics = {.loss_sum = loss, .samples = 1};
    return logs;
  };
  MetricMonitor training({.name = "loss"}, 0.5);
  training.begin("test", metric_names(10, true));
  EXPECT_EQ(training.observe(logs_of(false, 1, 9, 5)), std::nullopt);
  EXPECT_EQ(training.best(), std::nullopt);
  EXPECT_EQ(training.observe(logs_of(true, 2, 9, 10)), true);
  EXPECT_EQ(training.observe(logs_of(true, 1.75, 9, 20)), false) << "min_delta";
  EXPECT_EQ(training.observe(logs_of(true, NAN, 9, 30)), false);
  EXPECT_EQ(training.best(), 2);
  EXPECT_EQ(training.best_step(), 10);
  nlohmann::json state;
  training.save(state);
  MetricMonitor resumed({.name = "loss"}, 0.5);
  resumed.restore(state);
  EXPECT_EQ(resumed.best(), 2);
  EXPECT_EQ(resumed.best_step(), 10);

  MetricMonitor validation({.name = "validation_loss"});
  EXPECT_EQ(validation.observe(logs_of(false, 1, 9, 5)), true);
  EXPECT_EQ(validation.observe(logs_of(true, 1, 9, 5)), false);
  MetricMonitor missing({.name = "auc"});
  EXPECT_EQ(missing.observe(logs_of(true, 1, 9, 5)), std::nullopt);
}

TEST(Control, IgnoresTrainingMetricsOfAnIncompleteEpoch) {
  EpochLogs cut = epoch_with(0, 1);
  cut.complete = false;
  cut.metrics = {.loss_sum = 1, .samples = 1};
  EarlyStopping stopping({.metric = {.name = "loss"}, .patience = 1});
  ReduceOnPlateau plateau({.metric = {.name = "loss"}, .factor = 0.5, .patience = 1});
  for (Callback* const callback : std::initializer_list<Callback*>{&stopping, &plateau}) {
    callback->on_train_begin(begin_with_validation());
    for (int i = 0; i < 5; ++i) {
      callback->on_epoch_end(cut);
      callback->on_validation(cut);
    }
  }
  EXPECT_EQ(stopping.best(), std::nullopt);
  EXPECT_FALSE(stopping.stop_requested());
  EXPECT_EQ(plateau.factor(), 1);
}

model::Network two_class_network() {
  model::Network network({16}, "two");
  network.add(model::Dense({.units = 2}));
  return network;
}

TEST(ExactAuc, IsMissingInAnEpochThatWasResumed) {
  TrainerOptions options;
  options.metrics = model::make_metrics("auc:exact=true,f1", options.loss, 2);
  const data::Dataset data = data::Dataset::synthetic({16}, 2, 203).shuffle().batch(40);
  for (const int replicas : {1, 2, 3}) {
    const auto fit = [&](const checkpoint::ScratchDirectory& directory, std::int64_t steps) {
      FitOptions how{.epochs = 3, .steps = steps};
      how.checkpoint = {.directory = directory.path(),
                        .save_every = 2,
                        .keep_best = MonitoredMetric{.name = "auc", .direction = Direction::max}};
      // Counts neither the interrupted epoch nor the resumed one.
      how.callbacks = {std::make_shared<EarlyStopping>(
          EarlyStoppingOptions{.metric = {.name = "auc"}, .patience = 2, .min_delta = 1e9})};
      return train(replicas, two_class_network(), data, options, how).history;
    };
    const checkpoint::ScratchDirectory straight;
    const std::vector<EpochLogs> expected = fit(straight, 0).epochs;
    ASSERT_EQ(expected.size(), 3U);
    for (const EpochLogs& epoch : expected) EXPECT_TRUE(epoch.metric("auc"));

    const checkpoint::ScratchDirectory directory;
    fit(directory, 8);
    fit(directory, 10);  // its checkpoints have no complete value either
    const History resumed = fit(directory, 0);
    ASSERT_EQ(resumed.epochs.size(), 2U);
    EXPECT_EQ(resumed.epochs[0].metric("auc"), std::nullopt) << replicas;
    EXPECT_EQ(resumed.epochs[0].metric("f1"), expected[1].metric("f1"));
    EXPECT_EQ(resumed.epochs[1].values, expected[2].values);
    EXPECT_FALSE(resumed.end.stopped) << "one value since the best of the first epoch";

    const checkpoint::ScratchDirectory between;
    fit(between, 6);
    const History whole = fit(between, 0);
    EXPECT_EQ(whole.epochs[0].values, expected[1].values) << "resumed between two epochs";
  }
}

TEST(ResumedMetrics, NewOnesBeginWithTheNextEpoch) {
  const checkpoint::ScratchDirectory directory;
  const auto fit = [&](const char* metrics, std::int64_t steps) {
    TrainerOptions options;
    options.metrics = model::make_metrics(metrics, options.loss, kClasses);
    FitOptions how{.epochs = 3, .steps = steps};
    how.checkpoint.directory = directory.path();
    return train(2, plain_network(), shuffled_data(), options, how).history.epochs;
  };
  fit("", 7);
  fit("f1", 9);
  const auto epochs = fit("f1", 0);
  EXPECT_FALSE(epochs[0].metric("f1")) << "its sums are of the steps since the 7th";
  EXPECT_TRUE(epochs[1].metric("f1"));
}

class ValidatedSteps final : public Callback {
 public:
  void on_validation(const EpochLogs& logs) override {
    steps.push_back(logs.step);
    EXPECT_EQ(logs.validation->samples, 20);
    EXPECT_TRUE(logs.metric("validation_loss").has_value());
  }
  std::vector<std::int64_t> steps;
};

TEST(ValidationWithinEpochs, ChangesNoBitAndIsDoneOnce) {
  const auto run = [](FitOptions fit, std::int64_t every) {
    const auto validated = std::make_shared<ValidatedSteps>();
    fit.callbacks = {validated};
    fit.validation = small_data(20).batch(8);
    fit.validate_every = every;
    const Outcome outcome = train(2, normalized_network(), shuffled_data(), {}, fit);
    return std::pair(outcome.parameter_hash, validated->steps);
  };
  const auto plain = run({.epochs = 3}, 0);
  EXPECT_TRUE(plain.second.empty());
  const auto often = run({.epochs = 3}, 4);
  EXPECT_EQ(often.first, plain.first);
  EXPECT_THAT(often.second, ElementsAre(4, 8, 16));  // 12 is the end of an epoch

  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 3, .steps = 8};
  fit.checkpoint = {.directory = directory.path(), .save_every = 4};
  EXPECT_THAT(run(fit, 4).second, ElementsAre(4));  // 8 is the end of this run
  fit.steps = 0;
  EXPECT_THAT(run(fit, 4).second, ElementsAre(8, 16));
}

/// Stops the training at the first validation.
class StopsAtValidation final : public Callback {
 public:
  void on_validation(const EpochLogs& logs) override {
    first = logs;
    request_stop("seen enough");
  }
  void on_test_begin() override { ++tests; }
  EpochLogs first;
  int tests = 0;
};

TEST(ValidationWithinEpochs, IsReusedAtTheEndIfItStopsTheTraining) {
  const auto stops = std::make_shared<StopsAtValidation>();
  FitOptions fit{.epochs = 3};
  fit.callbacks = {stops};
  fit.validation = small_data(20).batch(8);
  fit.validate_every = 4;
  const Outcome outcome = train(1, plain_network(), shuffled_data(), {}, fit);
  EXPECT_EQ(outcome.history.end.steps, 4);
  EXPECT_EQ(stops->tests, 1);
  ASSERT_TRUE(outcome.history.epochs.back().validation);
  EXPECT_EQ(outcome.history.epochs.back().validation->loss(), stops->first.validation->loss());
}

/// Requests a checkpoint after step 2, and logs the epoch.
class RequestingCallback final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == 2) request_save();
  }
  void on_epoch_end(const EpochLogs& logs) override {
    log_scalar("twice", 2 * static_cast<double>(logs.epoch));
  }
};

TEST(Control, SavesAndLogsOnRequestOfCallbacks) {
  const checkpoint::ScratchDirectory directory;
  CapturedFile file;
  FitOptions fit{.epochs = 2};
  fit.checkpoint.directory = directory.path() / "run";
  fit.callbacks = {std::make_shared<RequestingCallback>(),
                   std::make_shared<JsonEvents>(file.get(), 0)};
  train(2, plain_network(), shuffled_data(), {}, fit);
  const std::string text = file.text();
  EXPECT_THAT(text, HasSubstr(R"({"event":"checkpoint","step":2,)"));
  EXPECT_THAT(text, HasSubstr(R"({"event":"scalar","step":12,"name":"twice","value":2.0,)"));
}

/// The first cells of each row of a table: epoch and step.
std::vector<std::string> first_cells(const std::filesystem::path& file) {
  std::vector<std::string> rows;
  std::istringstream lines(checkpoint::contents_of(file));
  for (std::string line; std::getline(lines, line);) {
    std::size_t end = 0;
    for (int cell = 0; cell < 2; ++cell) end = line.find(',', end) + 1;
    rows.push_back(line.substr(0, end));
  }
  return rows;
}

TEST(CsvLogTest, HasARowPerEpochAfterAnyInterruption) {
  const checkpoint::ScratchDirectory directory;
  const auto run = [&](const char* name, std::int64_t steps, std::int64_t lost) {
    FitOptions fit{.epochs = 3, .steps = steps};
    fit.checkpoint.directory = directory.path() / name;
    fit.callbacks = {std::make_shared<RequestingCallback>(),
                     std::make_shared<CsvLog>(directory.path() / fmt::format("{}.csv", name))};
    train(1, plain_network(), shuffled_data(), {}, fit);
    if (lost > 0)
      std::filesystem::remove_all(fit.checkpoint.directory / checkpoint::checkpoint_name(lost));
  };
  run("straight", 0, 0);
  run("resumed", 8, 0);   // writes the row of an incomplete epoch
  run("resumed", 0, 18);  // loses the last checkpoint after the row
  run("resumed", 0, 0);
  const auto rows = first_cells(directory.path() / "straight.csv");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0], "epoch,step,");
  EXPECT_EQ(rows[3], "2,18,");
  EXPECT_EQ(first_cells(directory.path() / "resumed.csv"), rows);
  EXPECT_THAT(checkpoint::contents_of(directory.path() / "resumed.csv"), HasSubstr(",twice\n"));

  checkpoint::overwrite(directory.path() / "resumed.csv", "a,b\n1,2\n");
  EXPECT_THAT(error_of([&] { run("resumed", 0, 0); }),
              HasSubstr("resumed.csv] expected the CSV log of the training that is resumed"));
}

EpochLogs epoch_of(std::int64_t epoch, std::vector<model::MetricValue> values) {
  EpochLogs logs;
  logs.epoch = epoch;
  logs.step = 10 * (epoch + 1);
  logs.metrics = {.loss_sum = 0.5, .samples = 1};
  logs.values = std::move(values);
  logs.learning_rate = 0.25F;
  logs.samples_per_second = 8;
  logs.seconds = 2;
  logs.breakdown = {.input = 0.5, .compute = 0.25};
  logs.verdict = Verdict{.bound_by = "input", .text = "bound by input"};
  return logs;
}

TEST(CsvLogTest, QuotesNamesAndKeepsTheColumnsOfTheEarlierRun) {
  const checkpoint::ScratchDirectory directory;
  const std::filesystem::path file = directory.path() / "log.csv";
  const auto run = [&](std::int64_t epoch, std::vector<std::string> known,
                       std::vector<model::MetricValue> values, const char* scalar) {
    CsvLog log(file);
    TrainBegin begin;
    begin.first_step = 10 * epoch;
    begin.known_metrics = std::move(known);
    log.on_train_begin(begin);
    log.on_scalar({.step = 10 * epoch, .name = scalar, .value = 3});
    log.on_epoch_end(epoch_of(epoch, std::move(values)));
    return checkpoint::contents_of(file);
  };
  const std::string header =
      "epoch,step,loss,\"a,b_loss\",\"the \"\"x\"\"_loss\",\"two\nlines\",learning_rate,"
      "samples_per_second,seconds,step_input,step_compute,step_communication,step_waiting,"
      "step_update,step_checkpoint,step_other,bound_by,\" x,y\"";
  const std::string times = "0.5,0.25,0,0,0,0,0,input";
  const std::string row = "0,10,0.5,1,2,,0.25,8,2," + times + ",3";
  EXPECT_EQ(
      run(0, {"loss", "a,b_loss", "the \"x\"_loss", "two\nlines"},
          {{.name = "a,b_loss", .values = {1}}, {.name = "the \"x\"_loss", .values = {2}}}, " x,y"),
      header + "\n" + row + "\n");
  // The next run has its metrics in another order, and one more.
  EXPECT_EQ(run(1, {"f1", "two\nlines", "loss"},
                {{.name = "f1", .values = {5}}, {.name = "two\nlines", .values = {4}}}, " x,y"),
            header + ",f1\n" + row + ",\n" + "1,20,0.5,,,4,0.25,8,2," + times + ",3,5\n");
  checkpoint::overwrite(file, "epoch,step,\"loss\n1,2,3\n");
  EXPECT_THAT(error_of([&] { run(1, {"loss"}, {}, "x"); }),
              HasSubstr("expected a quote that closes the field"));
}

/// Throws in the third step, and records the error passed to on_exception().
class Failing final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == 3) throw std::runtime_error("out of paper");
  }
  void on_exception(const std::exception& error) override {
    text = error.what();
    throw std::runtime_error("another one");
  }
  std::string text;
};

TEST(Control, NotifiesCallbacksOfTheErrorThatEndsATraining) {
  const auto failing = std::make_shared<Failing>();
  FitOptions fit;
  fit.callbacks = {failing};
  EXPECT_EQ(error_of([&] { train(2, plain_network(), shuffled_data(), {}, fit); }), "out of paper");
  EXPECT_EQ(failing->text, "out of paper");
}

TEST(MonitoredMetric, KnowsTheDirectionOfAnOutputsMetrics) {
  const std::vector<std::string> names = {"price_loss", "validation_kind_accuracy",
                                          "validation_kind_top3"};
  const MonitoredMetric loss{.name = names[0], .direction = {}};
  const MonitoredMetric accuracy{.name = names[1], .direction = {}};
  const MonitoredMetric top{.name = names[2], .direction = {}};
  for (const MonitoredMetric& metric : {loss, accuracy, top})
    EXPECT_NO_THROW(metric.check("early-stop", names));
  EXPECT_TRUE(loss.improves(1, 2, 0));
  EXPECT_TRUE(accuracy.improves(2, 1, 0));
  EXPECT_TRUE(top.improves(2, 1, 0));
}

}  // namespace
}  // namespace lockstep::inline v0::train
