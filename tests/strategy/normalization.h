// Trainings of a network with batch normalization, step by step, on one replica and on several.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/base/system/host.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;

/// Normalization after a convolution, with a ReLU that is fused into it, and after a Dense layer,
/// without.
inline model::Network normalized_images() {
  model::Network network({5, 5, 2}, "normalized images");
  network.add(model::Conv2D({.filters = 6, .use_bias = false}));
  network.add(model::BatchNormalization({.momentum = 0.9F}));
  network.add(model::ReLU());
  network.add(model::Flatten());
  network.add(model::Dense({.units = 8}));
  network.add(model::BatchNormalization({.momentum = 0.8F}));
  network.add(model::Dense({.units = kClasses}));
  return network;
}

/// 55 samples in batches of 13: four replicas have parts of unequal size, and one has none of the
/// last batch of 3.
inline data::Dataset unequal_images() {
  return data::Dataset::synthetic({5, 5, 2}, kClasses, 55).shuffle().batch(13);
}

inline TrainerOptions normalizing(const NormalizationScope& scope) {
  return {.loss = model::SparseCategoricalCrossentropy{},
          .optimizer = model::Sgd{.momentum = 0.9F},
          .normalization = scope,
          // Several buckets, so that exchanges interleave with overlapped buckets.
          .buckets = {.first_bytes = 64, .bytes = 64}};
}

inline constexpr NormalizationScope kSync{.kind = NormalizationScope::Kind::sync};

/// Results of the steps, and one replica's arrays after the last one.
struct NormalizedTraining {
  std::vector<double> losses;
  std::vector<float> gradients;
  std::vector<float> parameters;
  std::vector<float> buffers;
};

inline std::vector<float> copy_of(std::span<const float> values) {
  return {values.begin(), values.end()};
}

inline NormalizedTraining arrays_of(Replica& replica, std::vector<double> losses = {}) {
  model::CompiledModel& model = replica.model();
  return {std::move(losses), copy_of(model.gradients().first(model.parameter_table().flat_size())),
          copy_of(model.parameters()), copy_of(model.buffers())};
}

inline StepRequest request_of(std::int64_t step) {
  return {.step = step, .update = step + 1, .learning_rate = 0.05F};
}

/// The number of micro-batches that order the parts, as in Trainer::fit().
inline int shared_micro_batches(const TrainerOptions& options) {
  return options.normalization.kind == NormalizationScope::Kind::sync ? options.accumulate : 1;
}

/// Runs `steps` steps on a single replica, independent of the job.
inline NormalizedTraining train_alone(const data::Dataset& dataset, std::int64_t steps,
                                      const TrainerOptions& options) {
  set_thread_budget(1);  // as a strategy does
  Replica replica(std::make_shared<const model::Network>(normalized_images()), device::Device{},
                  allreduce::make_in_process_group(1).front(), options,
                  loss_plan(options, normalized_images()));
  replica.model().initialize(1);
  const auto stream =
      dataset.stream({.last_step = steps, .micro_batches = shared_micro_batches(options)});
  std::vector<data::Batch> parts;
  std::vector<double> losses;
  for (std::int64_t step = 0; stream->next(parts); ++step)
    losses.push_back(replica.train_step(parts[0], request_of(step)).report.metrics.loss());
  return arrays_of(replica, std::move(losses));
}

/// Runs the steps on all replicas of `strategy`, and returns the result of each local one.
inline std::vector<NormalizedTraining> train_on(Strategy& strategy, const data::Dataset& dataset,
                                                std::int64_t steps, const TrainerOptions& options) {
  LocalReplicas replicas(strategy, std::make_shared<const model::Network>(normalized_images()),
                         options);
  replicas.initialize(1);
  const auto stream = dataset.stream({.last_step = steps,
                                      .replicas = strategy.num_replicas_in_sync(),
                                      .first_replica = strategy.first_replica(),
                                      .local_replicas = strategy.local_replicas(),
                                      .micro_batches = shared_micro_batches(options)});
  std::vector<data::Batch> parts;
  std::vector<NormalizedTraining> trained(static_cast<std::size_t>(strategy.local_replicas()));
  for (std::int64_t step = 0; stream->next(parts); ++step)
    replicas.run([&](Replica& replica, int local) {
      const auto i = static_cast<std::size_t>(local);
      trained[i].losses.push_back(
          replica.train_step(parts[i], request_of(step)).report.metrics.loss());
    });
  for (int local = 0; local < strategy.local_replicas(); ++local) {
    NormalizedTraining& one = trained[static_cast<std::size_t>(local)];
    one = arrays_of(replicas[local], std::move(one.losses));
  }
  return trained;
}

template <typename T>
void expect_within(const std::vector<T>& values, const std::vector<T>& expected, double tolerance,
                   const char* what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i],
                tolerance * std::max(1.0, std::abs(static_cast<double>(expected[i]))))
        << what << ' ' << i;
}

inline void expect_same_training(const NormalizedTraining& trained,
                                 const NormalizedTraining& expected, double tolerance = 1e-5) {
  expect_within(trained.losses, expected.losses, tolerance, "loss");
  expect_within(trained.gradients, expected.gradients, tolerance, "gradient");
  expect_within(trained.parameters, expected.parameters, tolerance, "parameter");
  expect_within(trained.buffers, expected.buffers, tolerance, "moving statistic");
}

}  // namespace lockstep::inline v0::train
