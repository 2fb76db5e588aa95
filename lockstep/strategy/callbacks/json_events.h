// Progress of a training as JSON lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>

#include "lockstep/strategy/callback.h"

namespace lockstep::strategy {

/// Writes the events start, step, epoch, checkpoint and end to `out` as they happen, one JSON
/// object per line. Use only on the chief. Lost output (a full disk, a closed pipe) does not end
/// the training: nothing more is written, and std::ferror(out) is set.
class JsonEvents final : public Callback {
 public:
  /// `log_every`: number of steps between step events; 0 for none. `out` must outlive this object.
  JsonEvents(std::FILE* out, std::int64_t log_every) : out_(out), log_every_(log_every) {}

  void on_train_begin(const TrainBegin& begin) override;  ///< writes the event `start`
  void on_train_end(const TrainEnd& end) override;        ///< writes the event `end`
  void on_epoch_begin(std::int64_t epoch) override;       ///< resets the rate of samples
  void on_epoch_end(const EpochLogs& logs) override;      ///< writes the event `epoch`
  /// Writes the event `step` every `log_every` steps.
  void on_batch_end(const StepLogs& logs) override;
  void on_checkpoint(const CheckpointLogs& logs) override;  ///< writes the event `checkpoint`
  bool may_stop_at_batches() const override { return false; }

 private:
  void write(const nlohmann::ordered_json& event);

  std::FILE* out_;
  std::int64_t log_every_;
  std::int64_t samples_ = 0;                     // since the last step event
  std::int64_t steps_ = 0;                       // likewise
  allreduce::CommunicationTimes communication_;  // at the last step event
  std::chrono::steady_clock::time_point since_;
};

}  // namespace lockstep::strategy
