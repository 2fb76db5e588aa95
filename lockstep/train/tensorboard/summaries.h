// Summaries for TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/base/log.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/step_interval.h"
#include "lockstep/train/tensorboard/summary_writer.h"

namespace lockstep::inline v0::train {

/// Options of Summaries.
struct SummaryOptions {
  /// Number of steps between histograms of the weights and gradients of each parameter; 0: none.
  std::int64_t histogram_every = 0;
};

/// Writes DIR/train and, with validation, DIR/validation:
/// - over epochs: epoch_loss, epoch_accuracy, with more than 5 classes epoch_top5_accuracy,
///   epoch_NAME of each single number of TrainerOptions::metrics, and of each confusion matrix as
///   an image (confusion_image()); epoch_learning_rate, epoch_samples_per_second, epoch_seconds,
///   epoch_validation_seconds and, of epoch_seconds on the chief, epoch_input_seconds,
///   epoch_communication_seconds and epoch_waiting_seconds (for slower replicas);
/// - over steps: batch_loss, batch_accuracy, batch_learning_rate; means per step since the last
///   point, without the first step of a run: batch_samples_per_second, batch_seconds and
///   batch_NAME_seconds of each part of a step (StepBreakdown), such as batch_input_seconds;
///   checkpoint_seconds;
/// - on request: weights/PARAMETER and gradients/PARAMETER as histograms over steps. The gradient
///   is that of the mean loss over the global batch, before clipping;
/// - with FitOptions::prediction_images, after each validation: the image "predictions" over steps;
/// - once: the graph of the network (network_graph()) and the configuration as text.
///
/// DIR itself has a file with the hyperparameters of the training for the page HParams, which
/// compares the runs below a directory by them and by the results in `train` and `validation`. A
/// run replaces the file of an earlier one.
///
/// An incomplete epoch has no point, because the run that resumes it writes one; neither has the
/// loss of an epoch without a good step. Use only on the chief.
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
            const std::string& configuration, std::shared_ptr<Logger> logger = nullptr,
            const SummaryOptions& options = {});

  /// Writes the beginning of the run, the configuration, the graph and the hyperparameters.
  void on_train_begin(const TrainBegin& begin) override;
  void on_train_end(const TrainEnd& end) override;  ///< flushes, and logs the number of lost events
  void on_epoch_end(const EpochLogs& logs) override;  ///< writes the curves over epochs
  void on_batch_end(const StepLogs& logs) override;   ///< writes the curves over steps
  /// Writes evaluation_loss_vs_iterations, evaluation_accuracy_vs_iterations and
  /// evaluation_NAME_vs_iterations over steps, to DIR/train.
  void on_validation(const EpochLogs& logs) override;
  /// Writes the images with their predictions (prediction_sheet()) over steps, to DIR/train.
  void on_predictions(const ImagePredictions& predictions) override;
  void on_scalar(const ScalarLogs& logs) override;  ///< writes the scalar, to DIR/train
  /// Writes checkpoint_seconds, and flushes, so that the curves are complete up to the checkpoint.
  void on_checkpoint(const CheckpointLogs& logs) override;
  bool may_stop_at_batches() const override { return false; }

 private:
  /// Calls `write`, and logs the first failure as a warning.
  void attempt(const std::function<void()>& write);
  void add(SummaryWriter& writer, std::string_view tag, std::int64_t step, double value);
  /// Writes a point for each single number, an image for each confusion matrix. `tag` returns the
  /// tag of a metric.
  void add_values(SummaryWriter& writer, std::int64_t step,
                  std::span<const model::MetricValue> values,
                  const std::function<std::string(const std::string& name)>& tag);
  void add_epoch(SummaryWriter& writer, std::int64_t epoch, const model::MetricSums& metrics,
                 const std::vector<model::MetricValue>& values);
  void add_step_times(const StepLogs& logs);
  void add_histograms(const StepLogs& logs);
  void begin_session(const std::vector<Hyperparameter>& hyperparameters);
  void flush(SummaryWriter& writer);

  std::filesystem::path directory_;
  std::int64_t log_every_;
  std::string configuration_;
  SummaryOptions options_;
  std::shared_ptr<Logger> logger_;
  bool warned_ = false;
  std::int64_t unwritten_ = 0;  // validation points for which no file could be created
  strategy::LocalReplicas* replicas_ = nullptr;
  std::vector<std::string> class_names_;
  StepInterval interval_;     // since the last point over steps
  std::int64_t samples_ = 0;  // in these steps
  bool resumes_files_;        // whether an earlier run has written to DIR/train
  SummaryWriter train_;
  std::optional<SummaryWriter> validation_;
  std::optional<SummaryWriter> session_;  // the hyperparameters
};

}  // namespace lockstep::inline v0::train

namespace lockstep::inline v0 {

/// The options of summaries.
template <>
struct Fields<train::SummaryOptions> {
  using Options = train::SummaryOptions;  ///< the struct
  /// Its fields.
  static constexpr std::tuple list{
      Field{&Options::histogram_every,
            {"histograms", "Checkpoints and summaries",
             "With --summary-dir, number of steps between histograms of the weights and "
             "gradients; 0 writes none"},
            {.min = 0},
            {.needs = "summary_dir"}}};
};

}  // namespace lockstep::inline v0
