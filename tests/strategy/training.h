// Small trainings for tests: a few hundred made-up samples, a network of a few hundred parameters,
// replicas as threads.
#pragma once

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::strategy {

inline constexpr std::int64_t kClasses = 4;

/// 203 samples of 16 values: neither a multiple of the batches nor of the replicas that tests use.
inline data::Dataset small_data(std::int64_t records = 203) {
  return data::Dataset::synthetic({16}, kClasses, records);
}

inline data::Dataset shuffled_data() { return small_data().shuffle().batch(40); }

inline model::Network plain_network() {
  model::Network network({16}, "plain");
  network.add(model::Dense({.units = 12}));
  network.add(model::ReLU());
  network.add(model::Dense({.units = kClasses}));
  return network;
}

inline model::Network dropout_network() {
  model::Network network({16}, "dropout");
  network.add(model::Dense({.units = 12}));
  network.add(model::ReLU());
  network.add(model::Dropout({.rate = 0.3F}));
  network.add(model::Dense({.units = kClasses}));
  return network;
}

inline model::Network normalized_network() {
  model::Network network({16}, "normalized");
  network.add(model::Dense({.units = 12}));
  network.add(model::BatchNormalization({.momentum = 0.9F}));
  network.add(model::ReLU());
  network.add(model::Dense({.units = kClasses}));
  return network;
}

/// Replicas as threads of this process; one of them on the calling thread.
inline std::unique_ptr<Strategy> local_strategy(job::Session& session, int replicas) {
  if (replicas == 1) return std::make_unique<OneDeviceStrategy>(session);
  return std::make_unique<MirroredStrategy>(
      session, std::vector<device::Device>(static_cast<std::size_t>(replicas)));
}

/// Sends this process SIGTERM when a step has ended.
class RaiseAfter final : public Callback {
 public:
  explicit RaiseAfter(std::int64_t step) : step_(step) {}
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == step_) std::raise(SIGTERM);
  }

 private:
  std::int64_t step_;
};

/// Keeps what each step came to.
class StepRecorder final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    steps.push_back(logs);
    losses.push_back(logs.metrics.loss());
  }
  std::vector<StepLogs> steps;
  std::vector<double> losses;
};

/// What a training left behind.
struct Outcome {
  History history;
  std::vector<double> losses;
  std::vector<StepLogs> steps;
  std::vector<float> parameters;
  std::vector<float> buffers;
  std::uint64_t parameter_hash = 0;
};

/// Trains `network` on `strategy`. What `fit` asks for stays, a recorder is added.
inline Outcome train(Strategy& strategy, model::Network network, const data::Dataset& dataset,
                     const TrainerOptions& options, FitOptions fit) {
  const auto recorder = std::make_shared<StepRecorder>();
  fit.callbacks.push_back(recorder);
  Trainer trainer(strategy, std::move(network), options);
  Outcome outcome;
  outcome.history = trainer.fit(dataset, fit);
  outcome.losses = recorder->losses;
  outcome.steps = recorder->steps;
  const auto parameters = trainer.replicas()[0].model().parameters();
  outcome.parameters.assign(parameters.begin(), parameters.end());
  const auto buffers = trainer.replicas()[0].model().buffers();
  outcome.buffers.assign(buffers.begin(), buffers.end());
  outcome.parameter_hash = trainer.parameter_hash();
  return outcome;
}

/// The same on `replicas` threads.
inline Outcome train(int replicas, model::Network network, const data::Dataset& dataset,
                     const TrainerOptions& options = {}, FitOptions fit = {}) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, replicas);
  return train(*strategy, std::move(network), dataset, options, std::move(fit));
}

}  // namespace lockstep::strategy
