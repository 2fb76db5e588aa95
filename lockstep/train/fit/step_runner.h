// Training steps of the replicas of this process: input, computation, result.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lockstep/strategy/replica/replica.h"
#include "lockstep/train/fit/fit_plan.h"

namespace lockstep::inline v0::train {

/// Reads the batches of a training and executes its steps. On GPUs, the next batch is copied during
/// a step.
class StepRunner {
 public:
  /// Both must outlive this object.
  StepRunner(strategy::LocalReplicas& replicas, const FitPlan& plan);
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  /// Starts reading the batches from `position` on.
  void begin(const Position& position);
  /// The batches of this run; null before begin().
  const data::BatchStream* stream() const { return stream_.get(); }

  /// Executes the step at `position` with this learning rate. `signal`: the signal that this rank
  /// has received, which the step sums over the ranks; 0 for none. The result is valid until the
  /// next call. Collective.
  const strategy::StepResult& run(const Position& position, float learning_rate, int signal);

  // The following describe the last step.
  /// The part of each local replica.
  const std::vector<data::Batch>& parts() const { return parts_; }
  double seconds() const { return seconds_; }  ///< duration without waiting for input
  /// Its breakdown without `checkpoint` and `other`.
  strategy::StepBreakdown breakdown() const;
  /// Its logs for callbacks, after the step has been counted in `position`.
  StepLogs logs(const Position& position) const;

 private:
  strategy::LocalReplicas& replicas_;
  const FitPlan& plan_;
  std::unique_ptr<data::BatchStream> stream_;
  // These are members so that a step does not allocate.
  std::vector<data::Batch> parts_;
  std::vector<data::Batch> next_parts_;
  bool has_next_ = false;  // whether next_parts_ has the next step's parts
  std::vector<strategy::StepResult> results_;
  strategy::StepRequest request_;
  std::function<void(int)> body_;
  double seconds_ = 0;
  double input_seconds_ = 0;
};

}  // namespace lockstep::inline v0::train
