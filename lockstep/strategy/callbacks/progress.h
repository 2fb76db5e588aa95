// Progress of a training as text.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/strategy/callback.h"

namespace lockstep::strategy {

/// Formats a size in decimal units with three digits: "1.20 MB".
std::string bytes_text(std::int64_t bytes);

/// Maximum number of ranks that shard_table() lists individually.
inline constexpr std::size_t kMaxRanksShown = 16;
/// A table of the records that each rank reads in an epoch: a line for all records, and one per
/// rank if there are several. For more than kMaxRanksShown ranks, only the smallest and largest
/// shares. `files`: 0 if the records are not in files.
std::string shard_table(std::string_view policy, std::int64_t files, std::int64_t records,
                        std::int64_t bytes, const std::vector<data::WorkerShare>& shares);

/// Prints the progress of a training: on a terminal, a line that is updated in place during an
/// epoch; otherwise a line every `log_every` steps. Also prints a line per epoch and per
/// checkpoint, and a summary. Use only on the chief. Lost output (a full disk, a closed pipe) does
/// not end the training: nothing more is written, and std::ferror(out) is set.
class Progress final : public Callback {
 public:
  /// How often, and where to.
  struct Options {
    std::int64_t log_every = 100;  ///< steps between plain lines; 0 for none
    /// Whether `out` is a terminal, on which the last line can be overwritten.
    bool terminal = false;
  };
  /// `out` must outlive this object.
  Progress(std::FILE* out, const Options& options) : out_(out), options_(options) {}

  /// Prints model, data, replicas and options.
  void on_train_begin(const TrainBegin& begin) override;
  void on_train_end(const TrainEnd& end) override;    ///< prints the totals
  void on_epoch_begin(std::int64_t epoch) override;   ///< resets the sums of the epoch
  void on_epoch_end(const EpochLogs& logs) override;  ///< prints the line of an epoch
  void on_batch_end(const StepLogs& logs) override;   ///< prints the progress within the epoch
  void on_checkpoint(const CheckpointLogs& logs) override;  ///< prints the path of the checkpoint
  bool may_stop_at_batches() const override { return false; }

 private:
  void write(const std::string& text);
  void print_line(const std::string& text);
  void rewrite_line(const std::string& text);
  std::string step_line(const StepLogs& logs) const;

  std::FILE* out_;
  Options options_;
  TrainBegin begin_;
  model::MetricSums sums_;    // of the epoch so far, in this run
  std::int64_t samples_ = 0;  // likewise
  std::chrono::steady_clock::time_point epoch_start_;
  std::chrono::steady_clock::time_point last_rewrite_;
  std::size_t line_width_ = 0;  // of the line that is updated in place
};

}  // namespace lockstep::strategy
