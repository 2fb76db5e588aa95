// Calls of callbacks, and the end of a training by callbacks and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/train/trainer.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::ElementsAre;

class Diary final : public Callback {
 public:
  void on_train_begin(const TrainBegin& begin) override {
    note("train_begin " + std::to_string(begin.last_step));
  }
  void on_train_end(const TrainEnd& end) override {
    note("train_end " + std::to_string(end.steps));
  }
  void on_epoch_begin(std::int64_t epoch) override { note("epoch_begin " + std::to_string(epoch)); }
  void on_epoch_end(const EpochLogs& logs) override {
    note("epoch_end " + std::to_string(logs.epoch));
  }
  void on_batch_begin(std::int64_t step) override { note("batch_begin " + std::to_string(step)); }
  void on_batch_end(const StepLogs& logs) override {
    note("batch_end " + std::to_string(logs.step));
  }
  void on_test_begin() override { note("test_begin"); }
  void on_test_end(const model::MetricSums& metrics) override {
    note("test_end " + std::to_string(metrics.samples));
  }
  std::vector<std::string> entries;

 private:
  void note(std::string entry) { entries.push_back(std::move(entry)); }
};

TEST(Trainer, CallsTheHooksInTheOrderOfKeras) {
  const auto diary = std::make_shared<Diary>();
  FitOptions fit{.epochs = 2, .validation = small_data(9).batch(4)};
  fit.callbacks = {diary};
  train(1, plain_network(), small_data(6).batch(4), {}, fit);
  EXPECT_THAT(diary->entries,
              ElementsAre("train_begin 4", "epoch_begin 0", "batch_begin 0", "batch_end 1",
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

TEST(Trainer, StopsAfterTheStepOfARequest) {
  FitOptions fit{.epochs = 3};
  fit.callbacks = {std::make_shared<StopAt>(4)};
  const History history = train(2, plain_network(), small_data().batch(40), {}, fit).history;
  EXPECT_EQ(history.end.steps, 4);
  EXPECT_TRUE(history.end.stopped);
}

TEST(Trainer, StopsAfterTheEpochOfARequest) {
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

TEST(Trainer, EndsOneStepAfterASignal) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    FitOptions fit{.epochs = 3};
    fit.signals = {SIGTERM, SIGINT, SIGHUP};
    fit.callbacks = {std::make_shared<RaiseAt>(signal, 4)};
    const History history = train(2, plain_network(), small_data().batch(40), {}, fit).history;
    EXPECT_EQ(history.end.steps, 5);
    EXPECT_EQ(history.end.signal, signal);
  }
}

TEST(Trainer, LeavesSignalsToTheProgramByDefault) {
  static int taken = 0;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    const auto before = std::signal(signal, [](int) { ++taken; });
    FitOptions fit{.epochs = 3};
    fit.callbacks = {std::make_shared<RaiseAt>(signal, 4)};
    const History history = train(2, plain_network(), small_data().batch(40), {}, fit).history;
    std::signal(signal, before);
    EXPECT_EQ(history.end.signal, 0);
  }
  EXPECT_EQ(taken, 4);
}

class Thrower final : public Callback {
 public:
  void on_batch_end(const StepLogs&) override {
    throw std::runtime_error("the callback has had enough");
  }
};

TEST(Trainer, ThrowsTheErrorOfACallback) {
  FitOptions fit;
  fit.callbacks = {std::make_shared<Thrower>()};
  EXPECT_EQ(error_of([&] { train(2, plain_network(), small_data().batch(40), {}, fit); }),
            "the callback has had enough");
}

/// Its restore() cannot read its own state.
struct Forgetful : Callback {
  std::string name() const override { return "forgetful"; }
  checkpoint::Configuration state() const override { return nlohmann::json{{"count", "two"}}; }
  void restore(const checkpoint::Configuration& state) override {
    state->at("count").get_to(count);
  }
  int count = 0;
};

TEST(Trainer, NamesTheCallbackThatCannotReadItsState) {
  const checkpoint::ScratchDirectory scratch;
  FitOptions fit;
  fit.callbacks = {std::make_shared<Forgetful>()};
  fit.checkpoint.directory = scratch.path() / "run";
  const auto run = [&] { train(1, plain_network(), small_data().batch(40), {}, fit); };
  run();
  fit.epochs = 2;
  EXPECT_EQ(error_of(run),
            "[resume] expected a state of the callback forgetful, got an object of 1 key with "
            "members that it does not read");
}

}  // namespace
}  // namespace lockstep::inline v0::train
