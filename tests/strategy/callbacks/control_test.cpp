// Callbacks that control a training: they decide the same for any number of replicas, and a resumed
// training as one that was not interrupted.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategy/callbacks/csv_log.h"
#include "lockstep/strategy/callbacks/early_stopping.h"
#include "lockstep/strategy/callbacks/json_events.h"
#include "lockstep/strategy/callbacks/plateau.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/callbacks/captured_file.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::strategy {
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
  begin.known_metrics = metric_names(true, true);
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
                          Case{"validation_loss:max:patience=1", {1, 2, 1.5}, 3},
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

TEST(Monitored, NamesWhatIsWrong) {
  const auto names = metric_names(true, false);
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
  EXPECT_THAT(metric_names(true, true, {"accuracy", "f1"}),
              ElementsAre("loss", "accuracy", "top5_accuracy", "f1", "validation_loss",
                          "validation_accuracy", "validation_top5_accuracy", "validation_f1"))
      << "each once, as the columns of a table";
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

/// Nine epochs of 6 steps at most, in which no epoch but the first improves.
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
    fit(directory, 14);  // in the midst of the patience
    const Outcome resumed = fit(directory, 0);
    EXPECT_EQ(resumed.history.end.steps, 24);
    EXPECT_EQ(resumed.steps.back().learning_rate, 0.125F);
    EXPECT_EQ(resumed.parameter_hash, expected.parameter_hash);
    const Outcome again = fit(directory, 0);
    EXPECT_TRUE(again.steps.empty()) << "its patience is exhausted";
    EXPECT_TRUE(again.history.end.stopped);
  }
}

TEST(Control, KeepsTheBestCheckpointBesideTheNewest) {
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
  const Outcome kept = fit(4);  // resumes, and knows the best value
  std::vector<std::int64_t> steps;
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory.path()))
    steps.push_back(info.step);
  EXPECT_THAT(steps, ElementsAre(24, 6)) << "the loss was the largest in the first epoch";
  EXPECT_EQ(checkpoint::resolve_best(directory.path().native() + ":best").filename(),
            "step-00000006");
  EXPECT_EQ(kept.parameter_hash, one.parameter_hash) << "restore_best";
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

/// Requests a checkpoint after step 2, and logs the epoch.
class AskingCallback final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == 2) request_save();
  }
  void on_epoch_end(const EpochLogs& logs) override {
    log_scalar("twice", 2 * static_cast<double>(logs.epoch));
  }
};

TEST(Control, SavesAndLogsWhatCallbacksAsk) {
  const checkpoint::ScratchDirectory directory;
  CapturedFile file;
  FitOptions fit{.epochs = 2};
  fit.checkpoint.directory = directory.path() / "run";
  fit.callbacks = {std::make_shared<AskingCallback>(), std::make_shared<JsonEvents>(file.get(), 0)};
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
    fit.callbacks = {std::make_shared<AskingCallback>(),
                     std::make_shared<CsvLog>(directory.path() / fmt::format("{}.csv", name))};
    train(1, plain_network(), shuffled_data(), {}, fit);
    if (lost > 0)
      std::filesystem::remove_all(fit.checkpoint.directory / checkpoint::checkpoint_name(lost));
  };
  run("straight", 0, 0);
  run("resumed", 8, 0);   // a row of an epoch that is not complete
  run("resumed", 0, 18);  // the last checkpoint is lost, after the row
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

/// Fails in the third step, and keeps the error that it is told of.
class Failing final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == 3) throw std::runtime_error("out of paper");
  }
  void on_exception(const std::exception& error) override {
    told = error.what();
    throw std::runtime_error("another one");
  }
  std::string told;
};

TEST(Control, TellsCallbacksOfTheErrorThatEndsATraining) {
  const auto failing = std::make_shared<Failing>();
  FitOptions fit;
  fit.callbacks = {failing};
  EXPECT_EQ(error_of([&] { train(2, plain_network(), shuffled_data(), {}, fit); }), "out of paper");
  EXPECT_EQ(failing->told, "out of paper");
}

TEST(MonitoredMetric, KnowsTheDirectionOfAnOutputsMetrics) {
  const std::vector<std::string> names = {"price_loss", "validation_kind_accuracy"};
  const MonitoredMetric loss{.name = names[0], .direction = {}};
  const MonitoredMetric accuracy{.name = names[1], .direction = {}};
  for (const MonitoredMetric& metric : {loss, accuracy})
    EXPECT_NO_THROW(metric.check("early-stop", names));
  EXPECT_TRUE(loss.improves(1, 2, 0));
  EXPECT_TRUE(accuracy.improves(2, 1, 0));
}

}  // namespace
}  // namespace lockstep::strategy
