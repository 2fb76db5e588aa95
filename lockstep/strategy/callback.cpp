#include "lockstep/strategy/callback.h"

#include <fmt/format.h>

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

std::vector<std::string> metric_names(bool has_accuracy, bool has_validation) {
  std::vector<std::string> names = {"loss"};
  if (has_accuracy) names.insert(names.end(), {"accuracy", "top5_accuracy"});
  const std::size_t count = names.size();
  for (std::size_t i = 0; has_validation && i < count; ++i)
    names.push_back(fmt::format("{}{}", kValidationPrefix, names[i]));
  return names;
}

std::optional<double> EpochLogs::metric(std::string_view name) const {
  if (!name.starts_with(kValidationPrefix)) return find_value(metrics, name);
  if (!validation) return std::nullopt;
  return find_value(*validation, name.substr(kValidationPrefix.size()));
}

}  // namespace lockstep::strategy
