// Small trainings for tests: a few hundred generated samples and parameters, replicas as threads.
#pragma once

#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/metrics/make_metrics.h"
#include "lockstep/model/network/network.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/strategy/strategies.h"
#include "lockstep/train/trainer.h"

namespace lockstep::inline v0::train {
using namespace strategy;

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

/// Houses with an image, a word and a table, a price and a kind, and weights of 0 to 2. Pixels and
/// numbers determine the price and the kind.
inline data::Dataset house_data(std::int64_t records = 203) {
  std::mt19937 random(7);
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> words;
  std::vector<float> tables;
  std::vector<float> prices;
  std::vector<std::int32_t> kinds;
  std::vector<float> weights;
  for (std::int64_t i = 0; i < records; ++i) {
    float price = 0;
    for (int k = 0; k < 4; ++k) {
      images.push_back(static_cast<std::uint8_t>(random() % 256));
      price += static_cast<float>(images.back()) / 255;
    }
    for (int k = 0; k < 3; ++k) tables.push_back(static_cast<float>(random() % 100) / 50 - 1);
    words.push_back(static_cast<std::int32_t>(random() % 5));
    prices.push_back(price / 4 + tables.back() / 2);
    kinds.push_back((words.back() + (tables.back() > 0 ? 1 : 0)) % 3);
    weights.push_back(static_cast<float>(random() % 5) / 2);
  }
  return data::Dataset::from_memory(
      {std::move(images), std::move(words), std::move(tables)},
      {std::move(prices), std::move(kinds)},
      {.inputs = {{.name = "image", .shape = {2, 2, 1}},
                  {.name = "word", .type = ElementType::int32, .shape = {1}},
                  {.name = "table", .shape = {3}}},
       .targets = {{.name = "price", .shape = {1}},
                   {.name = "kind", .type = ElementType::int32, .classes = 3}},
       .weighted = true},
      std::move(weights));
}

/// Reads house_data() in another order: outputs "kind", "hidden", which has no loss, and "cost".
inline model::Network house_network() {
  model::Network network({{.name = "table", .shape = {3}},
                          {.name = "image", .shape = {2, 2, 1}},
                          {.name = "word", .shape = {1}, .type = ElementType::int32}},
                         "house");
  const auto dense = [&](model::NodeId from, std::int64_t units) {
    return network.add(model::Dense({.units = units}), {from});
  };
  const auto flat = [&](model::NodeId from) { return network.add(model::Flatten(), {from}); };
  const model::NodeId image = dense(flat(network.input("image")), 8);
  const model::NodeId word = flat(
      network.add(model::Embedding({.vocabulary = 5, .dimension = 8}), {network.input("word")}));
  const model::NodeId table = dense(network.input("table"), 8);
  const model::NodeId sum = network.add(model::Add(), {image, table});
  const model::NodeId all = network.add(model::Add(), {sum, word});
  const model::NodeId hidden = network.add(model::Tanh(), {all});
  network.output("kind", dense(hidden, 3));
  network.output("hidden", hidden);
  network.output("cost", dense(hidden, 1));
  return network;
}

inline TrainerOptions house_options() {
  return {.losses = {{.output = "kind", .loss = model::SparseCategoricalCrossentropy{}},
                     {.output = "cost",
                      .target = "price",
                      .loss = model::MeanSquaredError{},
                      .weight = 0.5F,
                      .metrics = model::make_metrics("mae", model::MeanSquaredError{}, 1)}},
          .optimizer = model::Sgd{.momentum = 0.9F},
          .schedule = {.peak = 0.1F}};
}

/// Replicas as threads of this process; one of them on the calling thread.
inline std::unique_ptr<Strategy> local_strategy(job::Session& session, int replicas) {
  if (replicas == 1) return std::make_unique<OneDeviceStrategy>(session);
  return std::make_unique<MirroredStrategy>(
      session, std::vector<device::Device>(static_cast<std::size_t>(replicas)));
}

/// Raises SIGTERM in this process after a step.
class RaiseAfter final : public Callback {
 public:
  explicit RaiseAfter(std::int64_t step) : step_(step) {}
  void on_batch_end(const StepLogs& logs) override {
    if (logs.step == step_) std::raise(SIGTERM);
  }

 private:
  std::int64_t step_;
};

/// Records the result of each step.
class StepRecorder final : public Callback {
 public:
  void on_batch_end(const StepLogs& logs) override {
    steps.push_back(logs);
    losses.push_back(logs.metrics.loss());
  }
  std::vector<StepLogs> steps;
  std::vector<double> losses;
};

/// The results of a training.
struct Outcome {
  History history;
  std::vector<double> losses;
  std::vector<StepLogs> steps;
  std::vector<float> parameters;
  std::vector<float> buffers;
  std::uint64_t parameter_hash = 0;
};

/// Trains `network` on `strategy` with the options `fit` and a recorder.
inline Outcome train(Strategy& strategy, model::Network network, const data::Dataset& dataset,
                     const TrainerOptions& options, FitOptions fit) {
  const auto recorder = std::make_shared<StepRecorder>();
  fit.callbacks.push_back(recorder);
  Trainer trainer(strategy, std::move(network), options);
  Outcome outcome;
  outcome.history = trainer.fit(dataset, fit);
  outcome.losses = recorder->losses;
  outcome.steps = recorder->steps;
  const checkpoint::ReplicaArrays arrays = trainer.replicas().arrays(false);
  outcome.parameters.assign(arrays.parameters.begin(), arrays.parameters.end());
  outcome.buffers.assign(arrays.buffers.begin(), arrays.buffers.end());
  outcome.parameter_hash = trainer.parameter_hash();
  return outcome;
}

/// Trains on `replicas` threads.
inline Outcome train(int replicas, model::Network network, const data::Dataset& dataset,
                     const TrainerOptions& options = {}, FitOptions fit = {}) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, replicas);
  return train(*strategy, std::move(network), dataset, options, std::move(fit));
}

}  // namespace lockstep::inline v0::train
