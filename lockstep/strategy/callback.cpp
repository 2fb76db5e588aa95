#include "lockstep/strategy/callback.h"

namespace lockstep::strategy {
namespace {

constexpr std::string_view kValidationPrefix = "validation_";

std::optional<double> find_value(const model::MetricSums& sums, std::string_view name) {
  if (name == "loss") return sums.loss();
  if (!sums.has_accuracy) return std::nullopt;
  if (name == "accuracy") return sums.accuracy();
  if (name == "top5_accuracy" || name == "top5") return sums.top5_accuracy();
  return std::nullopt;
}

}  // namespace

std::optional<double> EpochLogs::metric(std::string_view name) const {
  if (!name.starts_with(kValidationPrefix)) return find_value(metrics, name);
  if (!validation) return std::nullopt;
  return find_value(*validation, name.substr(kValidationPrefix.size()));
}

}  // namespace lockstep::strategy
