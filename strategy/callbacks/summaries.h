// A training as curves for TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "strategy/callback.h"
#include "strategy/summary_writer.h"

namespace lockstep::strategy {

/// Writes DIR/train and, with validation, DIR/validation: epoch_loss, epoch_accuracy, epoch_top5_accuracy and
/// epoch_learning_rate over epochs (with epoch_samples_per_second), batch_loss, batch_accuracy and batch_learning_rate
/// over steps, and the configuration as text. To be used on the chief alone.
class Summaries final : public Callback {
 public:
  /// Curves over steps have a point every `log_every` steps; 0 for none. `configuration` is shown as Markdown. Throws
  /// Error (data) where `directory` cannot be written.
  Summaries(const std::filesystem::path& directory, std::int64_t log_every, const std::string& configuration);

  void on_train_end(const TrainEnd& end) override;    ///< puts what was written on the disk
  void on_epoch_end(const EpochLogs& logs) override;  ///< writes the curves of epochs
  void on_batch_end(const StepLogs& logs) override;   ///< writes the curves of steps, as often as was asked for
  /// Puts what was written on the disk, so that curves and checkpoints go together.
  void on_checkpoint(const CheckpointLogs& logs) override;
  bool may_stop_at_batches() const override { return false; }

 private:
  std::filesystem::path directory_;
  std::int64_t log_every_;
  SummaryWriter train_;
  std::optional<SummaryWriter> validation_;
};

}  // namespace lockstep::strategy
