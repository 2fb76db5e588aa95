// Metrics beyond the loss and the accuracy of MetricSums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/loss/loss.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

/// A result of a metric.
struct MetricValue {
  std::string name;            ///< name in events, such as "f1"
  std::vector<double> values;  ///< one, or one per element of `shape`
  /// Empty: a single number. [classes]: a number per class. [classes, classes]: a matrix.
  Shape shape = {};

  bool is_single() const { return shape.empty(); }  ///< whether it is a single number
  bool operator==(const MetricValue&) const = default;
};

/// A metric as sums over samples, which are added over batches and replicas before its values are
/// computed from them. Counts below 2^53 are exact, so that a metric of counts is the same for any
/// number of replicas; other sums are rounded. Sample weights are ignored.
///
/// Objects are stateless, and replicas use them concurrently.
class Metric {
 public:
  virtual ~Metric() = default;

  virtual std::string name() const = 0;  ///< name in events; unique in a list of metrics
  /// Number of sums. 0: the metric keeps a list instead, to which add() appends; the lists of all
  /// batches and replicas are gathered on every rank.
  virtual std::size_t sums() const = 0;
  /// Adds the samples of one batch to `sums`. `outputs` are those that the loss reads, in host
  /// memory: [samples, width], or with several labels per sample [samples, positions, width], where
  /// positions labeled kMasked do not count.
  virtual void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
                   std::vector<double>& sums) const = 0;
  /// Whether the sums of `loss`, for samples of weight 1, contain what add() computes, such as the
  /// number of correct labels. add_sums() then replaces add(), and outputs need not be kept.
  virtual bool reads_sums(const Loss& /*loss*/) const { return false; }
  /// Adds samples by the sums of their loss. Requires reads_sums().
  virtual void add_sums(const MetricSums& /*samples*/, std::vector<double>& /*sums*/) const {}
  /// The values of the sums, always with the same names and shapes. The sums may be 0.
  virtual std::vector<MetricValue> values(std::span<const double> sums) const = 0;
};

/// Metrics in the order in which they are reported.
using Metrics = std::vector<std::shared_ptr<const Metric>>;
/// The sums of each metric of a list. Empty: no samples yet.
using MetricTotals = std::vector<std::vector<double>>;

/// Adds a batch to the totals of all `metrics`.
void add_batch(const Metrics& metrics, std::span<const float> outputs, const Targets& targets,
               std::int64_t samples, MetricTotals& totals);
/// Adds samples by the sums of their loss, which all `metrics` read.
void add_sums(const Metrics& metrics, const MetricSums& samples, MetricTotals& totals);
/// Adds `more` to `totals`; appends lists.
void add_totals(const Metrics& metrics, const MetricTotals& more, MetricTotals& totals);
/// The values of all metrics.
std::vector<MetricValue> values_of(const Metrics& metrics, const MetricTotals& totals);
/// "auc (exact), f1": distinguishes metrics that keep a list.
std::string list_metrics(const Metrics& metrics);

}  // namespace lockstep::inline v0::model
