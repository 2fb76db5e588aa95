// What a training tells those who watch it, at the moments that Keras users know.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/gradient_buckets.h"
#include "lockstep/allreduce/straggler.h"
#include "lockstep/data/dataset.h"
#include "lockstep/job/placement.h"
#include "lockstep/model/metric.h"
#include "lockstep/strategy/record_account.h"

namespace lockstep::strategy {

/// What is about to be trained, and on what.
struct TrainBegin {
  std::string model;                             ///< its name
  std::int64_t parameters = 0;                   ///< trained numbers
  std::string precision = "float32";             ///< of the computation
  std::string normalization = "local";           ///< over whose samples
  std::string strategy;                          ///< its name, as `--strategy` knows it
  std::string allreduce;                         ///< the route of gradients, as `--allreduce` knows it
  std::string allreduce_reason;                  ///< empty where there is nothing to choose
  int world_size = 1;                            ///< replicas
  int ranks = 1;                                 ///< of the job
  int nodes = 1;                                 ///< hosts
  std::vector<job::Placement> placements;        ///< of all replicas
  std::string data;                              ///< where the records come from, for people
  std::int64_t records = 0;                      ///< in the data set
  std::string shard_policy = "auto";             ///< as `--shard-policy` knows it
  std::vector<data::StoredFile> files;           ///< that hold the records; none where they are not read from files
  std::vector<data::WorkerShare> shares;         ///< what each rank reads in the first epoch of this run; on the chief
  std::vector<data::DamagedFile> damaged_files;  ///< that are used up to a damage only
  std::int64_t global_batch = 0;                 ///< samples of a step over all replicas
  std::int64_t per_replica_batch = 0;            ///< samples of a step of one replica, at most
  std::int64_t micro_batch = 0;                  ///< samples of one pass, at most
  std::int64_t steps_per_epoch = 0;              ///< the last, smaller one included
  std::int64_t first_step = 0;                   ///< steps done before: 0, or those of the checkpoint
  std::int64_t last_step = 0;                    ///< steps done at the end
  float learning_rate = 0;                       ///< at its peak, after scaling with the global batch
  std::uint64_t seed = 1;                        ///< of order, dropout and initial weights
  double start_seconds = 0;                      ///< from the start of the session to here
  std::optional<std::filesystem::path> restored_from;     ///< the checkpoint from which it goes on
  std::optional<std::filesystem::path> initialized_from;  ///< the file of pretrained weights
  std::string kept_head;  ///< the layer that did not take its weights from there; empty where all did
};

/// What a step came to.
struct StepLogs {
  std::int64_t step = 0;           ///< steps done, this one included
  std::int64_t epoch = 0;          ///< from 0
  model::MetricSums metrics = {};  ///< of this step, over all replicas; 0 samples where it was skipped
  std::int64_t samples = 0;        ///< of this step's global batch
  float learning_rate = 0;         ///< of this step
  double gradient_norm = 0;        ///< before clipping; 0 without clipping
  double input_wait_seconds = 0;   ///< that this rank has waited for input since the start
  /// Seconds since the start in which this rank's first replica stood still for communication, and of these the ones in
  /// which it waited for slower replicas to come.
  allreduce::CommunicationTimes communication = {};
  /// What each replica of the job was busy with in this step, waiting for others left out.
  std::span<const allreduce::BusySeconds> busy = {};
  /// Whether the update was left out, on all replicas: a loss or a reduced gradient that was not finite.
  bool skipped = false;
  bool overflow = false;                 ///< skipped for a loss scale that was too large
  std::optional<float> loss_scale = {};  ///< of this step, where the loss is scaled
};

/// What an epoch came to.
struct EpochLogs {
  std::int64_t epoch = 0;                       ///< from 0
  std::int64_t step = 0;                        ///< steps done
  bool complete = true;                         ///< false where the training ends within the epoch
  model::MetricSums metrics;                    ///< over the epoch's good steps, all replicas; 0 samples of none
  std::optional<model::MetricSums> validation;  ///< over all validation records, where there are some
  std::int64_t samples = 0;                     ///< records visited, those of skipped steps included
  std::int64_t skipped_samples = 0;             ///< records of steps that were skipped
  /// How often every record was seen, as checked over all ranks: once, or once by each rank where the policy gives all
  /// of them all records. 0 where the epoch was not whole in this run, or records were bad.
  std::int64_t times_seen = 0;
  std::vector<BadFile> bad_files = {};               ///< records that could not be read in this run, and were replaced
  double seconds = 0;                                ///< of training in this run, without validation
  double samples_per_second = 0;                     ///< over all replicas
  double validation_seconds = 0;                     ///< of evaluating the validation records
  double input_wait_seconds = 0;                     ///< that this rank waited for input in this epoch
  int data_workers = 0;                              ///< background threads of this rank that made batches at its end
  allreduce::CommunicationTimes communication = {};  ///< of this epoch, as in StepLogs
  float learning_rate = 0;                           ///< of the last step
};

/// What was saved.
struct CheckpointLogs {
  std::int64_t step = 0;       ///< steps done
  std::filesystem::path path;  ///< of the checkpoint's directory
  double seconds = 0;          ///< that training stood still for it
};

/// How a training ended.
struct TrainEnd {
  std::int64_t steps = 0;            ///< done in all
  double seconds = 0;                ///< of fit
  std::uint64_t parameter_hash = 0;  ///< xxh3-64 over the parameters in the order of their names
  int signal = 0;                    ///< that the training left on; 0 for none
  bool stopped = false;              ///< by a callback
};

/// Watches a training. Called on every rank at the same moments, on the thread that called fit. All hooks do nothing
/// unless overridden.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(const TrainBegin& /*begin*/) {}  ///< before the first step
  virtual void on_train_end(const TrainEnd& /*end*/) {}        ///< after the last one, also when it left on a signal
  virtual void on_epoch_begin(std::int64_t /*epoch*/) {}   ///< before the first step of an epoch, which counts from 0
  virtual void on_epoch_end(const EpochLogs& /*logs*/) {}  ///< after its last step and its validation
  virtual void on_batch_begin(std::int64_t /*step*/) {}    ///< `step`: steps done before it
  virtual void on_batch_end(const StepLogs& /*logs*/) {}   ///< after a step
  virtual void on_test_begin() {}                          ///< before the validation of an epoch
  virtual void on_test_end(const model::MetricSums& /*metrics*/) {}  ///< after it, with sums over all replicas
  virtual void on_checkpoint(const CheckpointLogs& /*logs*/) {}      ///< after a checkpoint is complete

  /// False promises that this callback never calls request_stop() from a batch hook, which saves an agreement of all
  /// ranks in every step.
  virtual bool may_stop_at_batches() const { return true; }

  /// Whether this callback wants the training to end. One rank's wish ends it on all, after the current step or epoch.
  bool stop_requested() const { return stop_requested_; }

 protected:
  void request_stop() { stop_requested_ = true; }  ///< wishes that the training ends; see stop_requested()

 private:
  bool stop_requested_ = false;
};

}  // namespace lockstep::strategy
