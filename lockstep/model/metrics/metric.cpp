#include "lockstep/model/metrics/metric.h"

#include "lockstep/base/error.h"

namespace lockstep::inline v0::model {
namespace {

void begin_totals(const Metrics& metrics, MetricTotals& totals) {
  if (!totals.empty()) return;
  for (const auto& metric : metrics) totals.emplace_back(metric->sums());
}

}  // namespace

void add_batch(const Metrics& metrics, std::span<const float> outputs, const Targets& targets,
               std::int64_t samples, MetricTotals& totals) {
  begin_totals(metrics, totals);
  if (samples == 0) return;
  for (std::size_t i = 0; i < metrics.size(); ++i)
    metrics[i]->add(outputs, targets, samples, totals[i]);
}

void add_sums(const Metrics& metrics, const MetricSums& samples, MetricTotals& totals) {
  begin_totals(metrics, totals);
  for (std::size_t i = 0; i < metrics.size(); ++i) metrics[i]->add_sums(samples, totals[i]);
}

void add_totals(const Metrics& metrics, const MetricTotals& more, MetricTotals& totals) {
  begin_totals(metrics, totals);
  for (std::size_t i = 0; i < more.size(); ++i) {
    if (metrics[i]->sums() == 0) {
      totals[i].insert(totals[i].end(), more[i].begin(), more[i].end());
      continue;
    }
    LOCKSTEP_CHECK(totals[i].size() == more[i].size());
    for (std::size_t k = 0; k < more[i].size(); ++k) totals[i][k] += more[i][k];
  }
}

std::vector<MetricValue> values_of(const Metrics& metrics, const MetricTotals& totals) {
  MetricTotals sums = totals;
  begin_totals(metrics, sums);
  std::vector<MetricValue> all;
  for (std::size_t i = 0; i < metrics.size(); ++i)
    for (MetricValue& value : metrics[i]->values(sums[i])) all.push_back(std::move(value));
  return all;
}

std::string list_metrics(const Metrics& metrics) {
  std::string names;
  for (const auto& metric : metrics)
    names += (names.empty() ? "" : ", ") + metric->name() + (metric->sums() == 0 ? " (exact)" : "");
  return names;
}

}  // namespace lockstep::inline v0::model
