// Callbacks that change the learning rate: when a metric no longer improves, or by a function.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/callbacks/monitored_metric.h"

namespace lockstep::inline v0::train {

/// Options of ReduceOnPlateau.
struct PlateauOptions {
  MonitoredMetric metric = {.name = "validation_loss"};  ///< metric that should improve
  double factor = 0.1;  ///< factor of each reduction; above 0 and below 1
  /// Number of epochs without an improvement before a reduction; at least 1. With
  /// FitOptions::validate_every, metrics of the validation count per validation.
  int patience = 3;
  double min_delta = 0;  ///< a smaller change is no improvement
  int cooldown = 0;      ///< number of epochs after a reduction that do not count
  double min_rate = 0;   ///< lower bound of a reduced learning rate
};

/// Parses "loss:min,factor=0.5,patience=2,min_delta=0.1,cooldown=1,min_lr=1e-5", the value of
/// `--reduce-on-plateau`. All but the metric may be omitted. Throws Error (input).
PlateauOptions parse_plateau(std::string_view text);

/// Keras's ReduceLROnPlateau, as a factor on the learning rate of the schedule. Checkpoints store
/// the factor and the counts. Metrics are the same on all ranks, so the callback may be on the
/// chief or on all ranks.
class ReduceOnPlateau final : public Callback {
 public:
  /// Throws Error (input) for a patience below 1, or a factor that is not between 0 and 1.
  explicit ReduceOnPlateau(PlateauOptions options = {});

  /// Throws Error (input) for a metric that this training does not have.
  void on_train_begin(const TrainBegin& begin) override;
  void on_epoch_end(const EpochLogs& logs) override;   ///< counts complete epochs
  void on_validation(const EpochLogs& logs) override;  ///< counts values of a validation metric
  bool may_stop_at_batches() const override { return false; }
  bool changes_rate() const override { return true; }
  float learning_rate(std::int64_t step, float rate) override;
  std::string name() const override;
  checkpoint::Configuration state() const override;
  void restore(const checkpoint::Configuration& state) override;

  double factor() const { return factor_; }  ///< product of all reductions

 private:
  void observe(const EpochLogs& logs);

  PlateauOptions options_;
  MetricMonitor monitor_;
  double factor_ = 1;
  std::int64_t wait_ = 0;      // values since the best one
  std::int64_t cooldown_ = 0;  // values that do not count yet
};

/// A learning rate that a function computes. All ranks use the chief's value.
class LearningRate final : public Callback {
 public:
  /// `step`: completed steps. `rate`: the result of the schedule and of the preceding callbacks.
  using Function = std::function<float(std::int64_t step, float rate)>;

  /// `function` is called on every rank before each step.
  explicit LearningRate(Function function) : function_(std::move(function)) {}

  bool may_stop_at_batches() const override { return false; }
  bool changes_rate() const override { return true; }
  float learning_rate(std::int64_t step, float rate) override { return function_(step, rate); }

 private:
  Function function_;
};

}  // namespace lockstep::inline v0::train
