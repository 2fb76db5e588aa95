// Progress of a training as text.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/step_interval.h"

namespace lockstep::inline v0::train {

/// Formats a size in decimal units with three digits: "1.20 MB".
std::string bytes_text(std::int64_t bytes);

/// Maximum number of ranks that shard_table() lists individually.
inline constexpr std::size_t kMaxRanksShown = 16;
/// Formats the records that each rank reads in an epoch: a line for all records, and one per rank
/// if there are several. For more than kMaxRanksShown ranks, only the smallest and largest shares.
/// `files`: 0 if the records are not in files.
std::string shard_table(std::string_view policy, std::int64_t files, std::int64_t records,
                        std::int64_t bytes, const std::vector<data::WorkerShare>& shares);

/// What ProgressBar prints.
struct ProgressOptions {
  std::int64_t log_every = 100;  ///< steps between lines; 0: only epochs
  /// Also prints placements, shares of the records, the reason for the route, and where the time of
  /// each epoch went.
  bool verbose = false;
  std::string length = {};  ///< which limits end the training, printed at the start; may be empty
};

/// Prints the progress of a training: a row per epoch and a summary; within an epoch, on a terminal
/// a line that is updated in place and fits its width, otherwise a row for the first step and every
/// `log_every` steps. Use only on the chief. Lost output (a full disk, a closed pipe) does not end
/// the training: nothing more is written, and std::ferror(out) is set.
///
/// Two lines follow a row once enough steps have passed since the last such lines: where the time
/// of a step went, and what limits the training (judge). On a terminal they appear only at the end
/// of an epoch; within it, the updated line shows what limits the training.
///
/// Trainer::fit() adds one by default (FitOptions::progress).
class ProgressBar final : public Callback {
 public:
  /// `out` must outlive this object.
  explicit ProgressBar(std::FILE* out = stdout, const ProgressOptions& options = {});

  /// Prints model, data, replicas and options.
  void on_train_begin(const TrainBegin& begin) override;
  void on_train_end(const TrainEnd& end) override;     ///< prints the totals
  void on_epoch_begin(std::int64_t epoch) override;    ///< resets the sums of the epoch
  void on_epoch_end(const EpochLogs& logs) override;   ///< prints the row of an epoch
  void on_batch_end(const StepLogs& logs) override;    ///< prints the progress within the epoch
  void on_validation(const EpochLogs& logs) override;  ///< prints a row within the epoch
  void on_checkpoint(const CheckpointLogs& logs) override;  ///< prints the path of the checkpoint
  bool may_stop_at_batches() const override { return false; }

 private:
  /// A row of the table of epochs and steps.
  struct Row;

  void write(const std::string& text);
  void print_line(const std::string& text);
  void print_sentence(const std::string& text);  // a line that a terminal shows wrapped
  void print_lines(const std::string& text);     // complete lines; names in them are printable
  void rewrite_line(const StepLogs& logs);
  void print_row(const Row& row);
  void print_details();
  void print_time_shares(const EpochLogs& logs);
  void print_verdict(const strategy::StepBreakdown& step, const strategy::Verdict& verdict);
  void print_profile(const model::Profile& profile);
  /// Appends the columns of the options' metrics to both lines if they fit 80 columns, else returns
  /// false.
  bool add_columns(const Row& row, std::string& header, std::string& cells) const;
  void print_metrics(const EpochLogs& logs);
  std::string step_line(const StepLogs& logs, std::size_t columns) const;
  std::int64_t last_step_of(std::int64_t epoch) const;
  double epoch_seconds() const;
  std::size_t columns() const;  // width of the terminal, without its last column

  std::FILE* out_;
  ProgressOptions options_;
  int descriptor_;       // file descriptor of `out_`
  bool is_on_terminal_;  // whether the last line can be overwritten
  TrainBegin begin_;
  std::string header_;  // header of the last printed rows
  bool has_accuracy_ = false;
  model::MetricSums sums_;    // sums over the current epoch, in this run
  std::int64_t samples_ = 0;  // in the current epoch, in this run
  EpochLogs last_epoch_ = {};
  StepInterval interval_;            // since the last verdict
  std::string bound_by_;             // result of the last verdict
  bool has_metric_columns_ = false;  // whether the last printed rows have them
  std::chrono::steady_clock::time_point epoch_start_;
  double paused_seconds_ = 0;  // by validations and checkpoints, since epoch_start_
  std::chrono::steady_clock::time_point last_rewrite_;
  std::size_t line_width_ = 0;  // width of the line that is updated in place
};

}  // namespace lockstep::inline v0::train
