#include "lockstep/train/callbacks/monitored_metric.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/fields/spec.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/text.h"
#include "lockstep/model/loss/metric_sums.h"
#include "lockstep/train/callbacks/callback.h"

namespace lockstep::inline v0::train {
namespace {

constexpr std::string_view kOfValidation = "validation_";
constexpr std::string_view kOfKeras = "val_";  // its prefix for metrics of the validation
constexpr const char* kBest = "best";
constexpr const char* kBestStep = "best_step";

constexpr auto kMinimized =
    std::to_array<std::string_view>({"loss", "mae", "mse", "rmse", "perplexity"});
constexpr auto kMaximized = std::to_array<std::string_view>(
    {"accuracy", "top5_accuracy", "auc", "auc_pr", "f1", "precision", "recall", "r2"});

std::optional<Direction> known_direction(std::string_view name) {
  if (name.starts_with(kOfValidation)) name.remove_prefix(kOfValidation.size());
  const auto is_known = [&](std::string_view known) {  // "price_loss" belongs to the output price
    return name.ends_with(known) &&
           (name.size() == known.size() || name[name.size() - known.size() - 1] == '_');
  };
  if (std::ranges::any_of(kMinimized, is_known)) return Direction::min;
  const std::string_view last = name.substr(name.rfind('_') + 1);
  const bool is_top = last.starts_with("top") && parse_number<int>(last.substr(3));  // top5
  if (is_top || std::ranges::any_of(kMaximized, is_known)) return Direction::max;
  return std::nullopt;
}

[[noreturn]] void refuse_option(std::string_view option, std::string_view expected,
                                std::string_view actual) {
  throw Error(ErrorCategory::input, option, expected, actual);
}

}  // namespace

std::vector<std::string> metric_names(std::int64_t classes, bool has_validation,
                                      const std::vector<std::string>& further) {
  std::vector<std::string> names = {"loss"};
  const model::MetricSums sums{.classes = classes};
  if (sums.has_accuracy()) names.emplace_back("accuracy");
  if (sums.has_top5()) names.emplace_back("top5_accuracy");
  for (const std::string& name : further)  // may repeat "accuracy"
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  const std::size_t count = names.size();
  for (std::size_t i = 0; has_validation && i < count; ++i)
    names.push_back(fmt::format("{}{}", kOfValidation, names[i]));
  return names;
}

void MonitoredMetric::check(std::string_view where, std::span<const std::string> names) const {
  const std::string full = name.ends_with("top5") ? name + "_accuracy" : name;
  const auto is_named = [&](const std::string& known) { return known == name || known == full; };
  if (std::ranges::none_of(names, is_named)) {
    const bool has_validation = std::ranges::any_of(
        names, [](const std::string& known) { return known.starts_with(kOfValidation); });
    if ((is_of_validation() || name.starts_with(kOfKeras)) && !has_validation)
      refuse_option(where, fmt::format("expected validation data for {}", name), "there are none");
    refuse_name(where, name, std::vector<std::string_view>(names.begin(), names.end()));
  }
  if (!direction && !known_direction(name))
    refuse_option(where, fmt::format("expected {}:max or {}:min", name, name),
                  "the better direction of this metric is not known");
}

bool MonitoredMetric::improves(std::optional<double> value, std::optional<double> best,
                               double min_delta) const {
  if (!value || !std::isfinite(*value)) return false;
  if (!best) return true;
  const Direction better = direction ? *direction : known_direction(name).value_or(Direction::min);
  return better == Direction::max ? *value > *best + min_delta : *value < *best - min_delta;
}

bool MonitoredMetric::is_of_validation() const { return name.starts_with(kOfValidation); }

std::string MonitoredMetric::text() const {
  const std::string text = quote_spec(name);
  if (!direction) return text;
  return text + (*direction == Direction::max ? ":max" : ":min");
}

MetricMonitor::MetricMonitor(MonitoredMetric metric, double min_delta)
    : metric_(std::move(metric)), min_delta_(min_delta) {}

void MetricMonitor::begin(std::string_view where, std::span<const std::string> names) {
  metric_.check(where, names);
  set_best({}, 0);
}

std::optional<bool> MetricMonitor::observe(const EpochLogs& logs) {
  if (!logs.complete && !metric_.is_of_validation()) return std::nullopt;
  const std::optional<double> value = logs.metric(metric_.name);
  if (!value) return std::nullopt;
  const bool is_better = metric_.improves(value, best_, min_delta_);
  if (is_better) set_best(value, logs.step);
  return is_better;
}

void MetricMonitor::set_best(std::optional<double> best, std::int64_t step) {
  best_ = best;
  best_step_ = step;
}

void MetricMonitor::save(nlohmann::json& state) const {
  if (!best_) return;
  state[kBest] = *best_;
  state[kBestStep] = best_step_;
}

void MetricMonitor::restore(const nlohmann::json& state) {
  if (state.contains(kBest))
    set_best(json_member<double>(state, kBest), json_member(state, kBestStep, std::int64_t{0}));
}

void MetricMonitor::remove(nlohmann::json& state) {
  state.erase(kBest);
  state.erase(kBestStep);
}

MonitoredMetric read_monitored(Spec& spec) {
  MonitoredMetric metric{.name = spec.head()};
  if (metric.name.empty())
    spec.refuse("", "expected METRIC, or METRIC:OPTIONS, such as validation_loss");
  const bool is_max = spec.take("max");
  const bool is_min = spec.take("min");
  if (is_max && is_min) spec.refuse("", "expected max or min");
  if (is_max || is_min) metric.direction = is_max ? Direction::max : Direction::min;
  return metric;
}

MonitoredMetric parse_monitored(std::string_view option, std::string_view text) {
  Spec spec = Spec::parse(option, text);
  MonitoredMetric metric = read_monitored(spec);
  spec.finish();
  return metric;
}

MonitoredMetric parse_keep_best(std::string_view text) {
  return parse_monitored("--keep-best", text);
}

}  // namespace lockstep::inline v0::train
