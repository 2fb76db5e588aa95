// Log intervals of a training: their time breakdown and verdict.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/strategy/replica/step_breakdown.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {

/// Returns the share of the run time that the threads of this process were runnable but waited for
/// a processor; 0 if unknown. Reads a file per thread.
double queued_share();

/// Returns the facts about a training that a verdict needs.
strategy::TrainingFacts facts_of(const TrainBegin& begin);

/// Sums the steps of a log interval, and judges them.
class StepInterval {
 public:
  /// Begins the first interval of a training.
  void begin(const TrainBegin& begin);
  /// Adds a step, except the first one of a run, which creates plans and allocates memory.
  void add(const StepLogs& logs);
  std::int64_t steps() const { return sums_.steps; }  ///< number of steps added
  /// Returns the mean breakdown of a step; zeros without steps.
  strategy::StepBreakdown mean() const;
  /// The sums over the steps.
  const strategy::StepSums& sums() const { return sums_; }
  /// The verdict; nullopt if the interval is too short for one.
  std::optional<strategy::Verdict> verdict() const;
  void restart();  ///< begins the next interval

 private:
  strategy::TrainingFacts facts_;
  std::int64_t first_step_ = 1;
  strategy::StepSums sums_;
  double data_processor_before_ = 0;  // when the interval began
  double data_processor_now_ = 0;
};

}  // namespace lockstep::inline v0::train
