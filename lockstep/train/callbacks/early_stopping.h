// Ends a training whose metric no longer improves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/monitored_metric.h"

namespace lockstep::inline v0::train {

/// Options of EarlyStopping.
struct EarlyStoppingOptions {
  MonitoredMetric metric = {.name = "validation_loss"};  ///< metric that should improve
  /// Number of epochs without an improvement after which the training ends; at least 1. With
  /// FitOptions::validate_every, metrics of the validation count per validation.
  int patience = 3;
  double min_delta = 0;  ///< a smaller change is no improvement
};

/// Parses "loss:min,patience=5,min_delta=0.1", the value of `--early-stop`. All but the metric may
/// be omitted. Throws Error (input).
EarlyStoppingOptions parse_early_stopping(std::string_view text);

/// Keras's EarlyStopping. Checkpoints store the best value and the number of epochs since then.
/// Metrics are the same on all ranks, so the callback may be on the chief or on all ranks.
class EarlyStopping final : public Callback {
 public:
  /// Throws Error (input) for a patience below 1.
  explicit EarlyStopping(EarlyStoppingOptions options = {});

  /// Throws Error (input) for a metric that this training does not have.
  void on_train_begin(const TrainBegin& begin) override;
  void on_epoch_end(const EpochLogs& logs) override;   ///< counts complete epochs
  void on_validation(const EpochLogs& logs) override;  ///< counts values of a validation metric
  bool may_stop_at_batches() const override { return false; }
  std::string name() const override;
  checkpoint::Configuration state() const override;
  /// Requests a stop if the patience is already exhausted.
  void restore(const checkpoint::Configuration& state) override;

  std::optional<double> best() const { return monitor_.best(); }  ///< best value so far

 private:
  void observe(const EpochLogs& logs);
  void stop_if_exhausted();

  MetricMonitor monitor_;
  int patience_;
  std::int64_t wait_ = 0;  // values since the best one
};

}  // namespace lockstep::inline v0::train
