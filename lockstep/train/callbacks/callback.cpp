#include "lockstep/train/callbacks/callback.h"

#include <fmt/format.h>

namespace lockstep::inline v0::train {

std::string TrainBegin::nothing_to_do() const {
  if (!restored_from || first_step < last_step) return {};
  return fmt::format(
      "nothing was trained: {} is at step {}, and this training ends at step {}; more --epochs or "
      "--steps continue it, and another --checkpoint-dir begins a new one",
      restored_from->string(), first_step, last_step);
}

std::optional<double> find_metric(const model::MetricSums& sums,
                                  std::span<const model::MetricValue> values,
                                  std::string_view name) {
  for (const model::MetricValue& value : values)
    if (value.is_single() && value.name == name) return value.values.front();
  if (name == "loss") return sums.loss();
  if (name == "accuracy" && sums.has_accuracy()) return sums.accuracy();
  if ((name == "top5_accuracy" || name == "top5") && sums.has_top5()) return sums.top5_accuracy();
  return std::nullopt;
}

std::optional<double> EpochLogs::metric(std::string_view name) const {
  constexpr std::string_view kPrefix = "validation_";
  if (!name.starts_with(kPrefix)) return find_metric(metrics, values, name);
  if (!validation) return std::nullopt;
  return find_metric(*validation, validation_values, name.substr(kPrefix.size()));
}

}  // namespace lockstep::inline v0::train
