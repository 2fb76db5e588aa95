// A training as curves for TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "device/log.h"
#include "strategy/callback.h"
#include "strategy/summary_writer.h"

namespace lockstep::strategy {

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
            std::shared_ptr<device::Logger> logger = nullptr);

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
  std::shared_ptr<device::Logger> logger_;
  bool warned_ = false;
  std::int64_t unwritten_ = 0;  // points of a validation whose file cannot be made
  SummaryWriter train_;
  std::optional<SummaryWriter> validation_;
};

}  // namespace lockstep::strategy
