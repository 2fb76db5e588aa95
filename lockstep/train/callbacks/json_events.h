// Progress of a training as JSON lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/step_interval.h"

namespace lockstep::inline v0::train {

/// Writes the events start, step, epoch, validation, checkpoint, scalar and end to `out` as they
/// happen, one JSON object per line, each with `time`, the seconds since 1970. Use only on the
/// chief. Lost output (a full disk, a closed pipe) does not end the training: nothing more is
/// written, and std::ferror(out) is set.
class JsonEvents final : public Callback {
 public:
  /// `log_every`: number of steps between step events; 0 for none. `run`: name of the training in
  /// the event `start`; empty for none. `options`: the program's options by name, for the same
  /// event. `out` must outlive this object.
  JsonEvents(std::FILE* out, std::int64_t log_every, std::string run = {},
             std::vector<std::pair<std::string, std::string>> options = {});
  /// Writes to `file`. A training that resumes from a checkpoint appends to it, any other one
  /// replaces it. `logger`: for a warning if the file cannot be written later; null: a new one.
  /// on_train_begin() throws Error (output) if the file cannot be opened.
  JsonEvents(std::filesystem::path file, std::int64_t log_every, std::string run = {},
             std::vector<std::pair<std::string, std::string>> options = {},
             std::shared_ptr<Logger> logger = nullptr);

  void on_train_begin(const TrainBegin& begin) override;  ///< writes the event `start`
  /// Writes the event `end`, with the metrics of the best epoch of this run: the first one with the
  /// highest accuracy or, if the loss has no classes, the lowest loss. Uses the validation if there
  /// is one.
  void on_train_end(const TrainEnd& end) override;
  void on_epoch_begin(std::int64_t epoch) override;  ///< resets the sample rate
  /// Writes the event `epoch`, also with `breakdown`, `bound_by` and `verdict`.
  void on_epoch_end(const EpochLogs& logs) override;
  /// Writes the event `step` every `log_every` steps: with `breakdown`, the mean seconds of each
  /// part of a step since the last event, and with `bound_by` and `verdict` as soon as the steps
  /// since the last verdict suffice for one. Times per step exclude the first step of a run.
  void on_batch_end(const StepLogs& logs) override;
  void on_validation(const EpochLogs& logs) override;       ///< writes the event `validation`
  void on_checkpoint(const CheckpointLogs& logs) override;  ///< writes the event `checkpoint`
  void on_scalar(const ScalarLogs& logs) override;          ///< writes the event `scalar`
  bool may_stop_at_batches() const override { return false; }

 private:
  struct BestEpoch {
    std::int64_t epoch = 0;
    model::MetricSums metrics;
    bool is_validation = false;
  };

  void note_epoch(const EpochLogs& logs);
  void exclude(double seconds);
  void add_waiting(std::span<const allreduce::BusySeconds> busy);
  void open(bool appends);
  void write(nlohmann::ordered_json event);

  std::FILE* out_ = nullptr;
  std::filesystem::path file_ = {};  // empty: the caller opened `out_`
  std::shared_ptr<std::FILE> owned_ = {};
  std::shared_ptr<Logger> logger_ = {};
  std::int64_t log_every_;
  std::string run_;
  std::vector<std::pair<std::string, std::string>> options_;
  std::optional<BestEpoch> best_;
  std::int64_t first_step_ = 0;  // completed steps at the start of this run
  std::string nothing_trained_;  // TrainBegin::nothing_to_do()
  std::int64_t samples_ = 0;     // since the last step event
  // Totals at the last step event, or after the first step of the run.
  allreduce::CommunicationTimes communication_;
  StepInterval interval_;        // since the last step event
  StepInterval judged_;          // since the last verdict
  std::vector<double> waiting_;  // seconds per replica, since the last step event
  std::chrono::steady_clock::time_point since_;
};

/// Adds metrics to `event`, with `prefix` before their names: a number, an array with one number
/// per class, or a matrix as an array of rows.
void add_metric_values(nlohmann::ordered_json& event, const std::string& prefix,
                       std::span<const model::MetricValue> values);

}  // namespace lockstep::inline v0::train
