// Evaluation and prediction: one pass over a data set without training.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/strategy/trainer_options.h"

namespace lockstep::strategy {

class LocalReplicas;
class Strategy;

/// Called at the same batches on all ranks, and must return the same value on all ranks. True ends
/// the evaluation.
using Interrupted = std::function<bool()>;

/// Number of batches between calls of Interrupted.
inline constexpr int kInterruptEvery = 16;

/// Sums over all records of `dataset` (batched), with the replicas' current statistics. Each record
/// counts once, for any number of replicas. nullopt if interrupted. `highest_label` is set to the
/// highest of all labels; -1 without labels. Collective.
std::optional<Evaluation> evaluate(LocalReplicas& replicas, const data::Dataset& dataset,
                                   const data::StreamOptions& stream,
                                   const Interrupted& interrupted = {},
                                   std::int32_t* highest_label = nullptr);

/// Computes the outputs for all records of `dataset` (batched), and passes them to `sink` on the
/// chief in record order. The same bits on any number of replicas, of one kind of device. Returns
/// the unreadable records. Collective.
std::vector<BadFile> predict(LocalReplicas& replicas, const data::Dataset& dataset,
                             const data::StreamOptions& stream, const PredictionSink& sink);

/// The maximum number of threads that read in this process: `requested`; or, if that is 0, one, and
/// for GPUs, whose host has cores to spare, the cores of this process, up to 16 per replica. Ranks
/// with the same cores divide them.
int reading_threads(int requested, const Strategy& strategy);

/// Stream options for this process's part of one pass over `dataset`. `threads`: reading_threads().
data::StreamOptions one_pass(const Strategy& strategy, const data::Dataset& dataset, int prefetch,
                             int threads);

}  // namespace lockstep::strategy
