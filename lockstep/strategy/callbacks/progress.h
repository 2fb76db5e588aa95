// Who reads how much, for people.
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

/// "1.2 MB": in powers of 1000, three digits.
std::string bytes_text(std::int64_t bytes);

/// Ranks that shard_table() lists one by one.
inline constexpr std::size_t kMostRanksShown = 16;
/// The records of an epoch as ranks read them: a line for the whole, and, of several ranks, one for each; of more than
/// kMostRanksShown the fewest and the most records of a rank. `files` of 0: the records are not in files.
std::string shard_table(std::string_view policy, std::int64_t files, std::int64_t records, std::int64_t bytes,
                        const std::vector<data::WorkerShare>& shares);

// A training as text, for people.

/// On a terminal one line that is rewritten while an epoch runs; elsewhere a plain line every so many steps. A line per
/// epoch and per checkpoint, and a summary. To be used on the chief alone. Output that is lost (a full disk, a closed
/// pipe) does not end the training: nothing more is written, and std::ferror(out) tells.
class Progress final : public Callback {
 public:
  /// What is shown, and how often.
  struct Options {
    std::int64_t log_every = 100;  ///< steps between plain lines; 0 for none
    bool terminal = false;         ///< whether `out` can rewrite its last line
  };
  /// `out` must outlive this.
  Progress(std::FILE* out, const Options& options) : out_(out), options_(options) {}

  void on_train_begin(const TrainBegin& begin) override;    ///< shows what runs where
  void on_train_end(const TrainEnd& end) override;          ///< shows the totals
  void on_epoch_begin(std::int64_t epoch) override;         ///< notes where the epoch begins
  void on_epoch_end(const EpochLogs& logs) override;        ///< shows the line of an epoch
  void on_batch_end(const StepLogs& logs) override;         ///< shows how far the epoch is
  void on_checkpoint(const CheckpointLogs& logs) override;  ///< shows where the checkpoint lies
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
  std::size_t line_width_ = 0;  // of the line that is being rewritten
};

}  // namespace lockstep::strategy
