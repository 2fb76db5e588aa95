// Callbacks of a training, with the hooks of Keras.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/checkpoint/training_state.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image/image.h"
#include "lockstep/data/order/record_split.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/job/placement/placement.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/metrics/metric.h"
#include "lockstep/strategy/replica/step_breakdown.h"

namespace lockstep::inline v0::strategy {
class LocalReplicas;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

/// One setting of a training, for comparison with other trainings.
struct Hyperparameter {
  std::string name;                                    ///< such as "learning_rate"
  std::variant<bool, double, std::string> value = {};  ///< its value

  bool operator==(const Hyperparameter&) const = default;
};

/// Passed to Callback::on_train_begin().
struct TrainBegin {
  std::string model;                    ///< name of the model
  std::int64_t parameters = 0;          ///< number of parameters
  std::int64_t frozen_parameters = 0;   ///< number of parameters that are not trained
  std::string precision = "float32";    ///< data type of the computation
  std::string normalization = "local";  ///< scope of batch normalization, in the syntax of `--bn`
  std::string strategy;                 ///< name of the strategy, as for `--strategy`
  std::string caveat = {};              ///< Strategy::caveat()
  std::string allreduce;                ///< route of gradients, as for `--allreduce`
  std::string allreduce_reason;         ///< why the route was chosen; empty if there was no choice
  std::string transport = "none";       ///< what carries messages between ranks: mpi, tcp
  std::string transport_reason;         ///< Session::transport_reason()
  int world_size = 1;                   ///< number of replicas
  int ranks = 1;                        ///< number of ranks
  int nodes = 1;                        ///< number of hosts
  bool is_chief = true;                 ///< whether this rank writes files and user-visible output
  std::vector<job::Placement> placements;  ///< placements of all replicas
  std::string data;                        ///< human-readable description of the data set
  std::int64_t records = 0;                ///< number of records in the data set
  /// Schema of a table (SourceInfo::table); null for other data.
  std::shared_ptr<const data::TableSchema> table = {};
  std::string shard_policy = "auto";    ///< as for `--shard-policy`
  std::vector<data::StoredFile> files;  ///< files of the records; empty if they are not in files
  /// Records of each rank in the first epoch of this run; on the chief.
  std::vector<data::WorkerShare> shares;
  /// Files that are used only up to a damaged position.
  std::vector<data::DamagedFile> damaged_files;
  bool has_validation = false;  ///< whether epochs end with a validation
  /// The split of which the training data are a part; null: none.
  std::shared_ptr<const data::SplitInfo> split = {};
  /// The names of the single numbers of TrainerOptions::metrics.
  std::vector<std::string> metrics = {};
  /// Class names of the first target of the training data. Empty if the target has none, or if no
  /// loss reads it.
  std::vector<std::string> class_names = {};
  /// The output that predicts these classes, and the prefix of its metrics; empty for a single
  /// output.
  std::string class_output = {};
  std::int64_t global_batch = 0;       ///< samples per step over all replicas
  std::int64_t per_replica_batch = 0;  ///< maximum number of samples per step of a replica
  std::int64_t gradient_bytes = 0;     ///< bytes that each replica sends to the all-reduce
  bool has_narrow_gradients = false;   ///< whether gradients are sent in 16 bits
  std::int64_t micro_batch = 0;        ///< maximum number of samples per micro-batch
  std::int64_t steps_per_epoch = 0;    ///< including a smaller last step
  std::int64_t first_step = 0;  ///< completed steps at the beginning: 0, or that of the checkpoint
  std::int64_t last_step = 0;   ///< completed steps at the end
  float learning_rate = 0;      ///< peak learning rate, after scaling with the global batch
  std::uint64_t seed = 1;       ///< seed of record order, dropout and initial weights
  double start_seconds = 0;     ///< seconds since the start of the session
  /// Names that EpochLogs::metric() accepts in this training.
  std::vector<std::string> known_metrics = {};
  std::optional<std::filesystem::path> restored_from;     ///< checkpoint that the run resumes from
  std::optional<std::filesystem::path> initialized_from;  ///< file of pretrained weights
  std::string uninitialized_head;  ///< layer that was not loaded from the file; empty: none
  /// Model, batch, replicas, loss, optimizer with its options, schedule, precision, seed, ….
  std::vector<Hyperparameter> hyperparameters = {};
  /// The replicas of this process, until the end of the training; null for none. Between steps, a
  /// callback may read the parameters and the gradients of the last step
  /// (lockstep/strategy/replica/local_replicas.h), but must not change them.
  strategy::LocalReplicas* replicas = nullptr;

  /// A sentence that nothing is trained, and what to do, if the checkpoint of `restored_from` is at
  /// the end of this training or beyond it; otherwise empty.
  std::string nothing_to_do() const;
};

/// Passed to Callback::on_batch_end().
struct StepLogs {
  std::int64_t step = 0;   ///< completed steps, including this one
  std::int64_t epoch = 0;  ///< from 0
  /// Sums of this step over all replicas; 0 samples if it was skipped.
  model::MetricSums metrics = {};
  std::int64_t samples = 0;       ///< size of this step's global batch
  float learning_rate = 0;        ///< learning rate of this step
  double gradient_norm = 0;       ///< norm before clipping; 0 without clipping
  double input_wait_seconds = 0;  ///< total time that this rank waited for input
  /// Total time that this rank's first replica was blocked in communication, and how much of it was
  /// spent waiting for slower replicas.
  allreduce::CommunicationTimes communication = {};
  /// Busy time of each replica of the job in this step, without waiting for other replicas.
  std::span<const allreduce::BusySeconds> busy = {};
  strategy::StepBreakdown breakdown = {};  ///< where the time of this step went on this rank
  int data_workers = 0;                    ///< active threads of this rank that read data
  /// Total processor time of these threads; 0 if unknown.
  double data_processor_seconds = 0;
  /// Whether all replicas skipped the update because a loss or the reduced gradient was not finite.
  bool skipped = false;
  bool overflow = false;                 ///< skipped because the loss scale was too large
  std::optional<float> loss_scale = {};  ///< loss scale of this step; nullopt without loss scaling
};

/// Bad records of one file.
struct BadFile {
  std::string file;          ///< empty if the records are not in files
  std::int64_t records = 0;  ///< number of bad records
  std::string first;         ///< error message of the first bad record

  bool operator==(const BadFile&) const = default;
};

/// Passed to Callback::on_epoch_end().
struct EpochLogs {
  std::int64_t epoch = 0;     ///< from 0
  std::int64_t step = 0;      ///< completed steps
  bool complete = true;       ///< false if the training ended within the epoch
  model::MetricSums metrics;  ///< sums over the epoch's good steps and all replicas
  /// Sums over all validation records; nullopt without validation.
  std::optional<model::MetricSums> validation;
  std::int64_t samples = 0;  ///< number of records visited, including those of skipped steps
  std::int64_t skipped_samples = 0;  ///< number of records of skipped steps
  /// How often each record was seen, verified over all ranks: once, or once per rank if the shard
  /// policy assigns all records to every rank. 0 if this run did not cover the whole epoch, or if
  /// there were bad records.
  std::int64_t times_seen = 0;
  std::vector<BadFile> bad_files = {};  ///< unreadable records of this run, which were replaced
  double seconds = 0;                   ///< training time in this run, without validation
  double samples_per_second = 0;        ///< over all replicas
  double validation_seconds = 0;        ///< time of the validation
  double input_wait_seconds = 0;        ///< time that this rank waited for input in this epoch
  int data_workers = 0;  ///< active background threads of this rank at the end of the epoch
  allreduce::CommunicationTimes communication = {};  ///< totals of this epoch, as in StepLogs
  /// Where the time of a step went on this rank: the mean over the steps of this run in the epoch,
  /// except the first step of the run. Zeros without such a step.
  strategy::StepBreakdown breakdown = {};
  /// Verdict on the steps since the last epoch with a verdict; nullopt for too few steps.
  std::optional<strategy::Verdict> verdict = {};
  float learning_rate = 0;  ///< learning rate of the last step
  /// Values of TrainerOptions::metrics over the samples that `metrics` covers. A checkpoint stores
  /// the sums of a metric up to 4096 numbers. A metric with more (auc:exact=true) is missing in the
  /// epoch in which a run resumes.
  std::vector<model::MetricValue> values = {};
  std::vector<model::MetricValue> validation_values = {};  ///< values over all validation records

  /// Returns the value with this name in JSON events: "loss", "accuracy", "top5", "f1", or with the
  /// prefix "validation_" the value of the validation. nullopt if this epoch has no single number
  /// of that name.
  std::optional<double> metric(std::string_view name) const;
};

/// Returns the single number `name` from `values`, or "loss", "accuracy" or "top5" from `sums`.
std::optional<double> find_metric(const model::MetricSums& sums,
                                  std::span<const model::MetricValue> values,
                                  std::string_view name);
/// Passed to Callback::on_scalar().
struct ScalarLogs {
  std::int64_t step = 0;  ///< completed steps
  std::string name;       ///< as it was logged
  double value = 0;       ///< as it was logged
};

/// The prediction of the network for one image.
struct ImagePrediction {
  std::int32_t label = 0;      ///< the correct class
  std::int32_t predicted = 0;  ///< the most probable class
  /// Probability of `predicted`; the raw output for a loss without probabilities.
  double probability = 0;
};

/// Passed to Callback::on_predictions(). Valid during the call.
struct ImagePredictions {
  std::int64_t step = 0;                ///< completed steps
  std::span<const data::Image> images;  ///< preprocessed for the network; the same in every call
  std::span<const ImagePrediction> predictions;  ///< one per image
  bool has_class_names = true;                   ///< whether TrainBegin::class_names apply
};

/// Passed to Callback::on_checkpoint().
struct CheckpointLogs {
  std::int64_t step = 0;       ///< completed steps
  std::filesystem::path path;  ///< directory of the checkpoint
  double seconds = 0;          ///< time for which the training was paused
};

/// Passed to Callback::on_train_end().
struct TrainEnd {
  std::int64_t steps = 0;            ///< completed steps
  double seconds = 0;                ///< duration of fit()
  std::uint64_t parameter_hash = 0;  ///< xxh3-64 hash of the parameters in the order of their names
  /// Number of steps that all replicas skipped in this run, without overflows of a loss scale.
  std::int64_t skipped_steps = 0;
  /// Whether the last step was good; if not, fit() throws unless a signal ended it.
  bool healthy = true;
  int signal = 0;                ///< signal that ended the training; 0 for none
  bool stopped = false;          ///< whether a callback ended the training
  std::string stop_reason = {};  ///< reason of a callback on this rank; may be empty
  /// Sums over all test records (FitOptions::test) with the parameters of the last step; nullopt if
  /// there were none, or if they were not evaluated.
  std::optional<model::MetricSums> test = {};
  std::vector<model::MetricValue> test_values = {};  ///< values over all test records
  /// The measured steps, on the chief with FitOptions::profile.
  std::optional<model::Profile> profile = {};
};

/// Observes a training. The hooks are called on every rank at the same points, on the thread that
/// called fit(). By default they do nothing. TrainBegin::is_chief is true on the rank that prints.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(const TrainBegin& /*begin*/) {}  ///< before the first step
  /// After the last step, also if a signal ended the training. If it diverged, on_exception()
  /// follows.
  virtual void on_train_end(const TrainEnd& /*end*/) {}
  /// Before the first step of an epoch; `epoch` from 0.
  virtual void on_epoch_begin(std::int64_t /*epoch*/) {}
  /// After the last step and the validation of an epoch.
  virtual void on_epoch_end(const EpochLogs& /*logs*/) {}
  virtual void on_batch_begin(std::int64_t /*step*/) {}  ///< before a step; `step`: completed steps
  virtual void on_batch_end(const StepLogs& /*logs*/) {}  ///< after a step
  virtual void on_test_begin() {}                         ///< before a validation
  /// After validation, with sums over all replicas.
  virtual void on_test_end(const model::MetricSums& /*metrics*/) {}
  /// After a validation within an epoch (FitOptions::validate_every). Only epoch, step and the
  /// validation values of the logs are set.
  virtual void on_validation(const EpochLogs& /*logs*/) {}
  /// On the chief, after each validation, with FitOptions::prediction_images.
  virtual void on_predictions(const ImagePredictions& /*predictions*/) {}
  virtual void on_checkpoint(const CheckpointLogs& /*logs*/) {}  ///< after a checkpoint is complete
  virtual void on_scalar(const ScalarLogs& /*logs*/) {}  ///< after a log_scalar() on this rank
  /// On every rank, if an exception ends the training, before fit() rethrows it. Must not
  /// communicate with other ranks. Exceptions from this hook are ignored.
  virtual void on_exception(const std::exception& /*error*/) {}

  /// Whether the callback may call request_stop() or request_save() in a batch hook. False avoids a
  /// synchronization of all ranks in every step.
  virtual bool may_stop_at_batches() const { return true; }
  /// Whether the callback has a learning_rate(). True costs a broadcast in every step.
  virtual bool changes_rate() const { return false; }
  /// Returns the learning rate of the next step, after `step` completed steps. `rate` is the result
  /// of the schedule and of the preceding callbacks. Called on every rank; all ranks use the value
  /// of the chief.
  virtual float learning_rate(std::int64_t /*step*/, float rate) { return rate; }

  /// The key of the state in checkpoints; unique among callbacks with a state. Empty: no state.
  virtual std::string name() const { return {}; }
  /// Returns the state to store in checkpoints, so that a resumed training continues exactly. The
  /// chief's state is saved.
  virtual checkpoint::Configuration state() const { return {}; }
  /// Called on every rank after on_train_begin() if the training resumes from a checkpoint with a
  /// state of this name. May request a stop; then no step is executed.
  virtual void restore(const checkpoint::Configuration& /*state*/) {}

  /// Whether this callback has requested the end of the training. A request on one rank ends the
  /// training on all ranks, after the current step or epoch.
  bool stop_requested() const { return stop_requested_; }
  const std::string& stop_reason() const { return stop_reason_; }  ///< reason of the request

 protected:
  /// Requests the end of the training. `reason`: a sentence for the user, or empty.
  void request_stop(std::string reason = {}) {
    stop_requested_ = true;
    stop_reason_ = std::move(reason);
  }
  /// Requests a checkpoint after the current step, or after the next good one. A request on one
  /// rank applies to all.
  void request_save() { save_requested_ = true; }
  /// Passes a value to on_scalar() of all callbacks of this rank. JsonEvents, Summaries and CsvLog
  /// write it on the chief.
  void log_scalar(std::string name, double value) {
    scalars_.push_back({.step = 0, .name = std::move(name), .value = value});
  }

 private:
  friend class FitCallbacks;
  friend class StopDecision;

  bool stop_requested_ = false;
  bool save_requested_ = false;
  std::string stop_reason_;
  std::vector<ScalarLogs> scalars_;  // not passed on yet
};

}  // namespace lockstep::inline v0::train
