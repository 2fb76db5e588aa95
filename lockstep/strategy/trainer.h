// A model, how it is trained, and where: fit, evaluate, predict.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "lockstep/data/dataset.h"
#include "lockstep/model/network.h"
#include "lockstep/strategy/evaluation.h"
#include "lockstep/strategy/local_replicas.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::strategy {

/// Trains one network on the replicas of a strategy. Every rank makes one and calls the same functions in the same
/// order.
///
///     Trainer trainer(strategy, zoo::make("cnn", {28, 28, 1}, 10), {.optimizer = model::Adam{}});
///     trainer.fit(train.shuffle().batch(64), {.epochs = 5, .validation = test.batch(64)});
class Trainer {
 public:
  /// All replicas begin with the initial parameters of `options.seed`.
  Trainer(Strategy& strategy, model::Network network, const TrainerOptions& options = {});

  const model::Network& network() const { return *network_; }  ///< what is trained
  const TrainerOptions& options() const { return options_; }   ///< as they were given
  /// The replicas of this process, for loops of one's own.
  LocalReplicas& replicas() { return replicas_; }

  /// Trains on `dataset`, which is cut into global batches. The results do not depend on the number of replicas but for
  /// rounding. Throws Error of any category; see there (diverged: 100 skipped steps in a row, or no good step at the
  /// end). While it runs, the signals of `options` (SIGTERM and SIGINT) end it after the current step, with a
  /// checkpoint where there is a directory for it, and are named in the history.
  History fit(const data::Dataset& dataset, const FitOptions& options = {});

  /// Exact sums over all records of `dataset` (batched): each counts once, whatever the number of replicas.
  model::MetricSums evaluate(const data::Dataset& dataset);

  /// Outputs for all records of `dataset` (batched), handed to `sink` on the chief in the order of the data set.
  void predict(const data::Dataset& dataset, const PredictionSink& sink);

  /// Takes parameters and moving statistics from the newest usable checkpoint in the directory `path`, or from the one
  /// that `path` is. Throws Error (checkpoint) where there is none or it is of another model. Returns where it came
  /// from.
  checkpoint::RestoredCheckpoint restore(const std::filesystem::path& path);

  /// Takes parameters and moving statistics from the file, or checkpoint, of another training; see read_pretrained for
  /// names, types and errors.
  PretrainedWeights initialize_from(const Pretrained& pretrained) {
    return strategy::initialize_from(replicas_, pretrained);
  }

  /// xxh3-64 over the parameters in the order of their names.
  std::uint64_t parameter_hash() { return replicas_[0].parameter_hash(); }

 private:
  TrainerOptions options_;
  std::shared_ptr<const model::Network> network_;
  LocalReplicas replicas_;
};

}  // namespace lockstep::strategy
