// Curves and texts for TensorBoard: an event file, which is a TFRecord file of tensorflow.Event messages that grows
// while training runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "lockstep/base/log.h"
#include "lockstep/strategy/callback.h"

namespace lockstep::strategy {

/// Appends to one event file. One writer per run and kind of data, as Keras does: DIR/train and DIR/validation, with
/// tags such as "epoch_loss", "epoch_accuracy", "batch_loss"; made by the chief alone. One thread. All errors are Error
/// (data) with the path; after one the writer can be used as before.
class SummaryWriter {
 public:
  /// Makes `directory` and in it a new event file, `events.out.tfevents.SECONDS.HOST.PID.NUMBER.v2`. A file that can be
  /// made but not written yet, on a full disk, is an error of the next flush.
  explicit SummaryWriter(const std::filesystem::path& directory);
  SummaryWriter(SummaryWriter&& other) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  /// Flushes; a failure to do so is not reported here: call flush() to hear of it.
  ~SummaryWriter();

  const std::filesystem::path& path() const { return path_; }  ///< of the file of events

  /// `wall_time` is in seconds since 1970; empty for now.
  void scalar(std::string_view tag, std::int64_t step, double value, std::optional<double> wall_time = {});
  /// Shown as Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view value, std::optional<double> wall_time = {});

  /// Hands everything to the file system, where TensorBoard sees it. Also done on the way, every second or every 64
  /// KiB. A failure, for instance for a full disk, loses the events since the last flush; the file stays readable, and
  /// the next flush tries again.
  void flush();

  std::int64_t lost_events() const { return lost_events_; }  ///< scalars and texts, in failed flushes

 private:
  void write(std::string_view bytes);
  void add(std::string_view tag, std::string_view plugin, std::int64_t step, std::string_view tensor,
           std::optional<double> wall_time);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t good_bytes_ = 0;
  bool torn_ = false;  // the file may end in a part of a record, behind good_bytes_
  std::string pending_;
  std::int64_t pending_events_ = 0;
  std::int64_t lost_events_ = 0;
  std::chrono::steady_clock::time_point last_flush_;
  std::set<std::string, std::less<>> known_tags_;
};

// A training as curves for TensorBoard.

/// Writes DIR/train and, with validation, DIR/validation: epoch_loss, epoch_accuracy, epoch_top5_accuracy and
/// epoch_learning_rate over epochs (with epoch_samples_per_second), batch_loss, batch_accuracy and batch_learning_rate
/// over steps, and the configuration as text. To be used on the chief alone.
///
/// An optional output does not end a training: where the disk is full or fails, a warning says so once, what cannot be
/// written is dropped, each flush tries again, and the end of the training reports how much is lost.
class Summaries final : public Callback {
 public:
  /// Curves over steps have a point every `log_every` steps; 0 for none. `configuration` is shown as Markdown. `logger`
  /// has the warnings; empty for standard error. Throws Error (data) where no file can be made in `directory`.
  Summaries(const std::filesystem::path& directory, std::int64_t log_every, const std::string& configuration,
            std::shared_ptr<Logger> logger = nullptr);

  void on_train_end(const TrainEnd& end) override;    ///< flushes, and reports what is lost
  void on_epoch_end(const EpochLogs& logs) override;  ///< writes the curves of epochs
  void on_batch_end(const StepLogs& logs) override;   ///< writes the curves of steps, as often as was asked for
  /// Flushes, so that curves and checkpoints go together.
  void on_checkpoint(const CheckpointLogs& logs) override;
  bool may_stop_at_batches() const override { return false; }

 private:
  /// Calls `write`; a failure becomes the warning.
  void attempt(const std::function<void()>& write);
  void add(SummaryWriter& writer, const char* tag, std::int64_t step, double value);
  void add_epoch(SummaryWriter& writer, std::int64_t epoch, const model::MetricSums& metrics);
  void flush(SummaryWriter& writer);

  std::filesystem::path directory_;
  std::int64_t log_every_;
  std::shared_ptr<Logger> logger_;
  bool warned_ = false;
  std::int64_t unwritten_ = 0;  // points of a validation whose file cannot be made
  SummaryWriter train_;
  std::optional<SummaryWriter> validation_;
};

}  // namespace lockstep::strategy
