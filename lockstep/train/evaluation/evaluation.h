// Evaluation and prediction: one pass over a data set without training.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/record/record_error.h"
#include "lockstep/model/metrics/metric.h"
#include "lockstep/train/callbacks/callback.h"
#include "lockstep/train/options/fit_options.h"

namespace lockstep::inline v0::strategy {
class LocalReplicas;
class Strategy;
}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0::train {

/// The result of Trainer::evaluate().
struct Evaluation : model::MetricSums {
  /// Values of TrainerOptions::metrics, in their order.
  std::vector<model::MetricValue> values = {};
  /// The unreadable records that Dataset::skip_bad_records() tolerated. They are in no sum.
  std::vector<BadFile> bad_files = {};

  /// The value called `name`, as EpochLogs::metric().
  std::optional<double> metric(std::string_view name) const {
    return find_metric(*this, values, name);
  }
};

/// One output of a network for one global batch.
struct OutputValues {
  std::string_view name;          ///< as in Network::outputs()
  std::span<const float> values;  ///< [samples, width]
  std::int64_t width = 0;         ///< elements of one sample
};

/// The outputs for one global batch.
struct Predictions {
  std::span<const std::int64_t> record_ids;  ///< [samples]
  std::span<const float> outputs;            ///< [samples, width], the first output of the network
  std::int64_t width = 0;                    ///< elements of one output
  /// All outputs, in the order of Network::outputs().
  std::span<const OutputValues> all = {};
  /// Unreadable records among `record_ids`, tolerated by Dataset::skip_bad_records(); ascending.
  std::span<const data::BadRecord> bad = {};
};
/// Receives predictions in record order.
using PredictionSink = std::function<void(const Predictions&)>;

/// Called at the same batches on all ranks, and must return the same value on all ranks. True ends
/// the evaluation.
using Interrupted = std::function<bool()>;

/// Number of batches between calls of Interrupted.
inline constexpr int kInterruptEvery = 16;

/// Sums over all records of `dataset` (batched), with the replicas' current statistics. Each record
/// counts once, for any number of replicas. nullopt if interrupted. `highest_label` is set to the
/// maximum label; -1 without labels. Collective.
std::optional<Evaluation> evaluate(strategy::LocalReplicas& replicas, const data::Dataset& dataset,
                                   const data::StreamOptions& stream,
                                   const Interrupted& interrupted = {},
                                   std::int32_t* highest_label = nullptr);

/// Computes the outputs for all records of `dataset` (batched), and passes them to `sink` on the
/// chief in record order. The same bits on any number of replicas, of one kind of device. Returns
/// the unreadable records. Collective.
std::vector<BadFile> predict(strategy::LocalReplicas& replicas, const data::Dataset& dataset,
                             const data::StreamOptions& stream, const PredictionSink& sink);

/// Returns the maximum number of reader threads of this process: `requested` if it is not 0, else
/// one, or on GPUs the number of cores of this process, up to 16 per replica. Ranks on the same
/// cores divide them.
int reading_threads(int requested, const strategy::Strategy& strategy);

/// Returns stream options for this process's part of one pass over `dataset`.
data::StreamOptions one_pass(const strategy::Strategy& strategy, const data::Dataset& dataset,
                             const ReadOptions& options);

}  // namespace lockstep::inline v0::train
