// How many threads should make batches.
#pragma once

#include <cstdint>

namespace lockstep::data {

/// Begins with as many as there may be, so that the first steps come soon. Where for `kIdleSteps` steps every batch of
/// the stream's slots was ready whenever one was asked for, one fewer works; where more than `kWaitShare` of
/// `kWindowSteps` steps was waiting, one more. Each time that a thread proves to have been needed, the next one is
/// sent away only after twice as many idle steps, so that the number settles. It depends on times, and what the threads
/// make does not depend on it.
class WorkerTuner {
 public:
  static constexpr int kWindowSteps = 16;
  static constexpr double kWaitShare = 0.02;
  static constexpr int kIdleSteps = 128;
  static constexpr int kMostIdleSteps = 64 * kIdleSteps;

  /// `most` >= 1.
  explicit WorkerTuner(int most) : most_(most), workers_(most) {}

  /// Of each step: the seconds that were waited for it, those since the step before it was given (waiting included),
  /// and whether all slots were ready when it was asked for. Returns workers().
  int add_step(double waited, double elapsed, bool all_ready);

  int workers() const { return workers_; }

 private:
  int most_;
  int workers_;
  int window_steps_ = 0;
  double waited_ = 0;
  double elapsed_ = 0;
  int idle_steps_ = 0;
  int patience_ = kIdleSteps;
  bool has_shrunk_ = false;  // and not grown since
};

}  // namespace lockstep::data
