#include "lockstep/data/pipeline/prefetch_stream.h"

#include <gtest/gtest.h>

namespace lockstep::inline v0::data {
namespace {

constexpr int kWindow = WorkerTuner::kWindowSteps;
constexpr int kIdle = WorkerTuner::kIdleSteps;

void add_steps(WorkerTuner& tuner, int steps, double waited, bool all_ready) {
  for (int step = 0; step < steps; ++step) tuner.add_step(waited, 1.0, all_ready);
}

TEST(WorkerTuner, StartsWithAllAndKeepsRequiredWorkers) {
  for (const int most : {1, 3}) {
    for (const double waited : {0.0, 0.02, 0.03, 1.0}) {
      WorkerTuner tuner(most);
      EXPECT_EQ(tuner.workers(), most);
      add_steps(tuner, 10 * kIdle, waited, false);
      EXPECT_EQ(tuner.workers(), most) << "waited " << waited;
    }
  }
}

TEST(WorkerTuner, DeactivatesIdleWorkersOneByOne) {
  WorkerTuner tuner(3);
  add_steps(tuner, kIdle - 1, 0, true);
  EXPECT_EQ(tuner.workers(), 3);
  EXPECT_EQ(tuner.add_step(0, 1, true), 2);
  add_steps(tuner, kIdle, 0, true);
  EXPECT_EQ(tuner.workers(), 1);
  add_steps(tuner, 3 * kIdle, 0, true);
  EXPECT_EQ(tuner.workers(), 1) << "one must work";
}

TEST(WorkerTuner, AStepThatIsNotReadyRestartsTheIdleCount) {
  WorkerTuner tuner(2);
  add_steps(tuner, kIdle - 1, 0, true);
  add_steps(tuner, 1, 0, false);
  add_steps(tuner, kIdle - 1, 0, true);
  EXPECT_EQ(tuner.workers(), 2);
}

/// A tuner with one of `most` workers active, at the beginning of a window.
WorkerTuner with_one(int most) {
  WorkerTuner tuner(most);
  add_steps(tuner, kIdle * (most - 1), 0, true);
  EXPECT_EQ(tuner.workers(), 1);
  return tuner;
}

TEST(WorkerTuner, ActivatesOneWorkerPerWaitingWindow) {
  struct {
    double waited;
    int workers_then;
  } const table[] = {{0, 1}, {0.01, 1}, {0.02, 1}, {0.021, 2}, {0.5, 2}, {1, 2}};
  for (const auto& row : table) {
    WorkerTuner tuner = with_one(4);
    add_steps(tuner, kWindow - 1, row.waited, false);
    EXPECT_EQ(tuner.workers(), 1) << "the window is not over";
    add_steps(tuner, 1, row.waited, false);
    EXPECT_EQ(tuner.workers(), row.workers_then) << "waited " << row.waited;
  }
  WorkerTuner tuner = with_one(4);
  add_steps(tuner, 10 * kWindow, 0.5, false);
  EXPECT_EQ(tuner.workers(), 4) << "the maximum";
}

TEST(WorkerTuner, MeasuresTheWaitOverAWindow) {
  WorkerTuner tuner = with_one(2);
  for (int window = 0; window < 5; ++window) {
    tuner.add_step(0.3, 1, false);  // less than the share of 16 seconds
    add_steps(tuner, kWindow - 1, 0, false);
  }
  EXPECT_EQ(tuner.workers(), 1);
  tuner.add_step(0.33, 1, false);
  add_steps(tuner, kWindow - 1, 0, false);
  EXPECT_EQ(tuner.workers(), 2);
}

TEST(WorkerTuner, SettlesAtTheRequiredNumber) {
  WorkerTuner tuner(2);
  int changes = 0;
  for (int step = 0, before = 2; step < 200 * kIdle; ++step) {
    const bool enough = before == 2;
    const int workers = tuner.add_step(enough ? 0 : 0.5, 1, enough);
    changes += workers != before ? 1 : 0;
    before = workers;
  }
  EXPECT_EQ(tuner.workers(), 2);
  EXPECT_GE(changes, 4) << "it tries again, ";
  EXPECT_LE(changes, 2 * 9) << "at increasing intervals";
}

}  // namespace
}  // namespace lockstep::inline v0::data
