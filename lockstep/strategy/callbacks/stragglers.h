// Names the replicas that the others wait for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/straggler.h"
#include "lockstep/base/log.h"
#include "lockstep/strategy/callback.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::strategy {

/// Warns at every log interval of who was slow in it, by how much, and with what: input or computation. To be used on
/// the chief alone.
class Stragglers final : public Callback {
 public:
  /// Looks after every `steps` steps, 1 or more.
  Stragglers(const Strategy& strategy, std::int64_t steps);

  /// Notes where the training begins.
  void on_train_begin(const TrainBegin& begin) override { first_step_ = begin.first_step + 1; }
  /// Adds the step, and names who was slow at the end of an interval.
  void on_batch_end(const StepLogs& logs) override;
  bool may_stop_at_batches() const override { return false; }

 private:
  std::shared_ptr<Logger> logger_;
  std::vector<std::string> names_;  // of all replicas
  std::int64_t steps_;
  std::int64_t first_step_ = 0;
  allreduce::StragglerReport report_;
};

}  // namespace lockstep::strategy
