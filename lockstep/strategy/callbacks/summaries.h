// Summaries for TensorBoard. An event file is a TFRecord file of tensorflow.Event messages that
// grows during training.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/base/log.h"
#include "lockstep/data/image/image.h"
#include "lockstep/strategy/callback.h"

namespace lockstep::strategy {

/// Appends to one event file. As in Keras, there is one writer for DIR/train and one for
/// DIR/validation, with tags such as "epoch_loss", "epoch_accuracy", "batch_loss". Use only on the
/// chief, from one thread. Throws Error (data) with the path; the writer can be used again after an
/// error.
class SummaryWriter {
 public:
  /// Creates `directory` and in it a new event file,
  /// `events.out.tfevents.SECONDS.HOST.PID.NUMBER.v2`. If the file can be created but not written
  /// (a full disk), the next flush reports the error.
  explicit SummaryWriter(const std::filesystem::path& directory);
  SummaryWriter(SummaryWriter&&) noexcept;
  SummaryWriter& operator=(SummaryWriter&& other) noexcept;
  /// Flushes, and ignores errors; call flush() before to detect them.
  ~SummaryWriter();

  const std::filesystem::path& path() const { return path_; }  ///< path of the event file

  /// Marks the beginning of a run (SessionLog::START), before its first point: TensorBoard drops
  /// the points of earlier files from `step` on, which this run repeats.
  void begin_run(std::int64_t step);
  /// `wall_time`: seconds since 1970; nullopt for the current time.
  void scalar(std::string_view tag, std::int64_t step, double value,
              std::optional<double> wall_time = {});
  /// TensorBoard renders the text as Markdown.
  void text(std::string_view tag, std::int64_t step, std::string_view value,
            std::optional<double> wall_time = {});

  /// Writes an image of 1 or 3 channels, as a PNG file.
  void image(std::string_view tag, std::int64_t step, const data::ImageView& pixels,
             std::optional<double> wall_time = {});

  /// Writes all pending events to the file. The writer also flushes every second or every 64 KiB. A
  /// failure (such as a full disk) loses the events since the last flush; the file stays readable,
  /// and the next flush tries again.
  void flush();

  std::int64_t lost_events() const { return lost_events_; }  ///< events lost in failed flushes

 private:
  void write(std::string_view bytes);
  void add(std::string_view tag, std::string_view plugin, std::int64_t step,
           std::string_view tensor, std::optional<double> wall_time);

  std::filesystem::path path_;
  FileDescriptor file_;
  std::int64_t good_bytes_ = 0;
  bool torn_ = false;  // the file may end with an incomplete record after good_bytes_
  std::string pending_;
  std::int64_t pending_events_ = 0;
  std::int64_t lost_events_ = 0;
  std::chrono::steady_clock::time_point last_flush_;
  std::set<std::string, std::less<>> known_tags_;
};

/// Writes DIR/train and, with validation, DIR/validation: epoch_loss, epoch_accuracy,
/// epoch_top5_accuracy, epoch_NAME of each single number of TrainerOptions::metrics, and of each
/// confusion matrix as an image (confusion_image()), epoch_learning_rate and
/// epoch_samples_per_second over epochs; batch_loss, batch_accuracy and batch_learning_rate over
/// steps; and the configuration as text. An epoch that the training leaves incomplete has no point,
/// as the run that resumes it writes one; neither has the loss of an epoch without a good step. Use
/// only on the chief.
///
/// A write error does not end the training: the first one is logged as a warning, events that
/// cannot be written are dropped, each flush tries again, and the number of lost events is logged
/// at the end.
class Summaries final : public Callback {
 public:
  /// `log_every`: number of steps between points of the curves over steps; 0 for none.
  /// `configuration`: Markdown text. `logger`: receives the warnings; null for standard error.
  /// Throws Error (data) if no file can be created in `directory`.
  Summaries(const std::filesystem::path& directory, std::int64_t log_every,
            const std::string& configuration, std::shared_ptr<Logger> logger = nullptr);

  /// Writes the beginning of the run and the configuration.
  void on_train_begin(const TrainBegin& begin) override;
  void on_train_end(const TrainEnd& end) override;  ///< flushes, and logs the number of lost events
  void on_epoch_end(const EpochLogs& logs) override;  ///< writes the curves over epochs
  void on_batch_end(const StepLogs& logs) override;   ///< writes the curves over steps
  /// Writes evaluation_loss_vs_iterations, evaluation_accuracy_vs_iterations and
  /// evaluation_NAME_vs_iterations over steps, to DIR/train.
  void on_validation(const EpochLogs& logs) override;
  void on_scalar(const ScalarLogs& logs) override;  ///< writes the scalar, to DIR/train
  /// Flushes, so that the curves are complete up to the checkpoint.
  void on_checkpoint(const CheckpointLogs& logs) override;
  bool may_stop_at_batches() const override { return false; }

 private:
  /// Calls `write`, and logs the first failure as a warning.
  void attempt(const std::function<void()>& write);
  void add(SummaryWriter& writer, std::string_view tag, std::int64_t step, double value);
  /// A curve for each single number, an image for each confusion matrix. `tag`: of a name.
  void add_values(SummaryWriter& writer, std::int64_t step,
                  std::span<const model::MetricValue> values,
                  const std::function<std::string(const std::string& name)>& tag);
  void add_epoch(SummaryWriter& writer, std::int64_t epoch, const model::MetricSums& metrics,
                 const std::vector<model::MetricValue>& values);
  void flush(SummaryWriter& writer);

  std::filesystem::path directory_;
  std::int64_t log_every_;
  std::string configuration_;
  std::shared_ptr<Logger> logger_;
  bool warned_ = false;
  std::int64_t unwritten_ = 0;  // validation points for which no file could be created
  SummaryWriter train_;
  std::optional<SummaryWriter> validation_;
};

}  // namespace lockstep::strategy
