// A data set through the model, once, without changing it.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "lockstep/data/dataset.h"
#include "lockstep/strategy/local_replicas.h"

namespace lockstep::strategy {

/// Called at the same batches on all ranks; must return the same on all. True ends the evaluation.
using Interrupted = std::function<bool()>;

/// How often an evaluation asks whether it is to end, in batches.
inline constexpr int kInterruptEvery = 16;

/// Sums over all records of `dataset` (batched), each once, whatever the number of replicas; with their current
/// statistics. nullopt where it was interrupted. Collective.
std::optional<model::MetricSums> evaluate(LocalReplicas& replicas, const data::Dataset& dataset,
                                          const data::StreamOptions& stream, const Interrupted& interrupted = {});

/// The outputs for one global batch.
struct Predictions {
  std::span<const std::int64_t> record_ids;  ///< [samples]
  std::span<const float> outputs;            ///< [samples, width], as the network gives them
  std::int64_t width = 0;                    ///< elements of one output
};
/// Takes predictions as they come, in the order of the data set.
using PredictionSink = std::function<void(const Predictions&)>;

/// Outputs for all records of `dataset` (batched), handed to `sink` on the chief in the order of the data set.
/// Collective.
void predict(LocalReplicas& replicas, const data::Dataset& dataset, const data::StreamOptions& stream,
             const PredictionSink& sink);

/// Options of a stream that gives this process its part of one pass over `dataset`.
data::StreamOptions one_pass(const Strategy& strategy, const data::Dataset& dataset, int prefetch = 2, int threads = 1);

}  // namespace lockstep::strategy
