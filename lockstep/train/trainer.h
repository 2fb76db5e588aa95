// Trainer: fit, evaluate and predict with a model on the replicas of a strategy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/model/network/network.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/trainer_options.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/options/fit_options.h"

namespace lockstep::inline v0::strategy {
class LocalReplicas;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

struct DataNames;

/// Trains a network on the replicas of a strategy. Every rank creates a Trainer and calls the same
/// functions in the same order.
///
///     Trainer trainer(strategy, zoo::make("cnn", {28, 28, 1}, 10), {.optimizer = model::Adam{}});
///     trainer.fit(train.shuffle().batch(64), {.epochs = 5, .validation = test.batch(64)});
class Trainer {
 public:
  /// Initializes all replicas with the same parameters, generated from `options.seed`. Throws Error
  /// (input) that names the first option that differs between ranks. Collective.
  Trainer(strategy::Strategy& strategy, model::Network network,
          const strategy::TrainerOptions& options = {});
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  const model::Network& network() const { return *network_; }  ///< the trained network
  const strategy::TrainerOptions& options() const {
    return options_;
  }  ///< the options of the constructor
  /// The replicas of this process, for custom training loops
  /// (lockstep/strategy/replica/local_replicas.h).
  strategy::LocalReplicas& replicas() { return *replicas_; }

  /// Trains on `dataset`, which must be batched. Up to rounding, the results do not depend on the
  /// number of replicas. Throws Error of any category (diverged: 100 skipped steps in a row, or a
  /// skipped step at the end). The signals of `options` (by default none) end the training after
  /// the current step, with a checkpoint if a directory is set; the history contains the signal.
  History fit(const data::Dataset& dataset, const FitOptions& options = {});

  /// Computes sums of loss, accuracy and the options' metrics over all records of `dataset`
  /// (batched). Each record counts once, for any number of replicas. Unreadable records that
  /// Dataset::skip_bad_records() tolerates do not count. Classes are matched by name with those of
  /// the training or of the restored checkpoint, if both have names: `dataset` may list them in
  /// another order, or lack some. Without names, class i is output i. Fewer classes than outputs
  /// are a warning if the number of classes is inferred from the highest label, as in IDX and
  /// TFRecord files and in tables, else an error. Throws Error (data) for a class or a feature that
  /// the training did not have.
  Evaluation evaluate(const data::Dataset& dataset, const ReadOptions& options = {});

  /// Computes the outputs for all records of `dataset` (batched), and passes them to `sink` on the
  /// chief in record order. Labels do not matter. Returns the unreadable records that
  /// Dataset::skip_bad_records() tolerates, by files. Throws Error (data) for other features than
  /// those of the training.
  std::vector<BadFile> predict(const data::Dataset& dataset, const PredictionSink& sink,
                               const ReadOptions& options = {});

  /// Loads parameters and moving statistics from the checkpoint `path`, or from the newest usable
  /// checkpoint in the directory `path`; DIR:best is the best one (CheckpointPlan::keep_best).
  /// Returns the checkpoint. Throws Error (checkpoint) if there is none, or if it belongs to
  /// another model.
  checkpoint::RestoredCheckpoint restore(const std::filesystem::path& path);

  /// Loads parameters and moving statistics from a file or checkpoint of another training; see
  /// read_pretrained() for names, types and errors.
  PretrainedWeights initialize_from(const Pretrained& pretrained);

  /// xxh3-64 hash of the parameters in the order of their names.
  std::uint64_t parameter_hash();

 private:
  strategy::TrainerOptions options_;
  std::shared_ptr<const model::Network> network_;
  std::unique_ptr<strategy::LocalReplicas> replicas_;
  std::unique_ptr<DataNames> names_;  // names in the training data
};

}  // namespace lockstep::inline v0::train
