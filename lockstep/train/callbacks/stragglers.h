// Warnings about slow replicas.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/buckets/straggler.h"
#include "lockstep/base/log.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

/// Logs a warning for each replica that was slow in the last interval, with its delay and whether
/// input or computation was slow. Use only on the chief.
class Stragglers final : public Callback {
 public:
  /// Evaluates the measurements every `steps` steps, at least 1. If a training resumes within an
  /// interval, its steps are evaluated with the next one.
  Stragglers(const strategy::Strategy& strategy, std::int64_t steps);

  /// Returns `steps` for a program that reports progress every `log_every` steps (0: never): at
  /// least 100, because in fewer steps occasional delays look like slow replicas.
  static std::int64_t interval(std::int64_t log_every);

  /// Stores the first step of the run.
  void on_train_begin(const TrainBegin& begin) override { first_step_ = begin.first_step + 1; }
  /// Adds the step, and logs warnings at the end of an interval.
  void on_batch_end(const StepLogs& logs) override;
  bool may_stop_at_batches() const override { return false; }

 private:
  std::shared_ptr<Logger> logger_;
  std::vector<std::string> names_;  // names of all replicas
  std::int64_t steps_;
  std::int64_t first_step_ = 0;
  allreduce::StragglerReport report_;
};

}  // namespace lockstep::inline v0::train
