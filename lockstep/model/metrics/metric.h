// Metrics beyond the loss and the accuracy of MetricSums: sums over samples, and values of the
// sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/model/loss.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model {

/// A result of a metric.
struct MetricValue {
  std::string name;            ///< in events, such as "f1"
  std::vector<double> values;  ///< one, or as many as `shape` has
  /// Empty: a single number. [classes]: a number of each class. [classes, classes]: a matrix.
  Shape shape = {};

  bool is_single() const { return shape.empty(); }  ///< whether it is a single number
  bool operator==(const MetricValue&) const = default;
};

/// A metric as sums over samples, which are added over batches and replicas before its values are
/// computed from them. Counts below 2^53 are exact, so that a metric of counts is the same for any
/// number of replicas; other sums are to rounding. Sample weights do not count.
///
/// An object has no state of its own: replicas use it at the same time.
class Metric {
 public:
  virtual ~Metric() = default;

  virtual std::string name() const = 0;  ///< in events; unique in a list of metrics
  /// Number of sums. 0: the metric keeps a list instead, to which add() appends; the lists of all
  /// batches and replicas are joined on every rank.
  virtual std::size_t sums() const = 0;
  /// Adds the samples of one batch to `sums`. `outputs`: [samples, width], those that the loss
  /// reads, in host memory; with several labels a sample [samples, positions, width], where the
  /// label kMasked does not count.
  virtual void add(std::span<const float> outputs, const Targets& targets, std::int64_t samples,
                   std::vector<double>& sums) const = 0;
  /// Whether `loss` alone, with samples of weight 1, has in its sums what add() needs, such as the
  /// number of correct labels. add_sums() can then replace add(), and nobody has to keep outputs.
  virtual bool reads_sums(const Loss& /*loss*/) const { return false; }
  /// Adds the samples of which the loss has these sums. Only with reads_sums().
  virtual void add_sums(const MetricSums& /*samples*/, std::vector<double>& /*sums*/) const {}
  /// The values of the sums, always of the same names and shapes. Called with sums of 0 too.
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
/// Adds `more` to `totals`, the lists behind those that exist.
void add_totals(const Metrics& metrics, const MetricTotals& more, MetricTotals& totals);
/// The values of all metrics.
std::vector<MetricValue> values_of(const Metrics& metrics, const MetricTotals& totals);
/// "auc (exact), f1": a metric that keeps a list is not the same as one of sums.
std::string list_metrics(const Metrics& metrics);

}  // namespace lockstep::model
