#include "apps/lockstep/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "apps/lockstep/report/text.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps::report {
namespace {

constexpr const char* kTarget = "--target";
constexpr const char* kMissing = "–";

/// Members of `start` that are not settings, or that the page shows elsewhere.
constexpr auto kNotSettings = std::to_array<std::string_view>(
    {"event", "time", "run", "options", "start_seconds", "resident_bytes", "devices", "shares",
     "damaged_files", "restored_from", "initialized_from", "first_step", "allreduce_reason",
     "transport", "transport_reason"});

bool is_reached(const Goal& goal, double value) {
  return value == *goal.value || goal.metric.improves(value, goal.value);
}

bool have_all(std::span<const RunLog> runs, const std::string& name) {
  return std::ranges::all_of(runs,
                             [&](const RunLog& run) { return run.epoch_values.contains(name); });
}

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : dump_json(value);
}

}  // namespace

std::string Goal::text() const {
  return value ? fmt::format("{} of {}", metric.name, short_number(*value)) : metric.name;
}

Goal parse_goal(const std::string& text) {
  Goal goal;
  const std::size_t equals = text.rfind('=');
  if (equals != std::string::npos) {
    goal.value = parse_number<double>(std::string_view(text).substr(equals + 1));
    if (!goal.value)
      throw Error(ErrorCategory::input, kTarget, "expected METRIC or METRIC=X with a number X",
                  fmt::format("got \"{}\"", text));
  }
  goal.metric = train::parse_monitored(kTarget, std::string_view(text).substr(0, equals));
  return goal;
}

std::optional<Goal> choose_goal(std::span<const RunLog> runs,
                                const std::optional<Goal>& requested) {
  std::optional<Goal> goal = requested;
  if (goal) {
    std::set<std::string> names;
    for (const RunLog& run : runs)
      for (const auto& [name, points] : run.epoch_values) names.insert(name);
    goal->metric.check(kTarget, std::vector<std::string>(names.begin(), names.end()));
  } else {
    for (const char* name : {"validation_accuracy", "validation_loss", "accuracy", "loss"})
      if (!goal && have_all(runs, name)) goal = Goal{.metric = {.name = name}, .value = {}};
  }
  // Accepts the short name, as options of a training do.
  const auto has_metric = [&](const std::string& name) {
    return std::ranges::any_of(runs,
                               [&](const RunLog& run) { return run.epoch_values.contains(name); });
  };
  if (goal && !has_metric(goal->metric.name) && has_metric(goal->metric.name + "_accuracy"))
    goal->metric.name += "_accuracy";
  if (!goal || goal->value) return goal;
  for (const RunLog& run : runs) {
    const auto best = best_point(run, goal->metric);
    if (best && (!goal->value || goal->metric.improves(goal->value, best->value)))
      goal->value = best->value;
  }
  return goal;
}

std::optional<Point> best_point(const RunLog& run, const train::MonitoredMetric& metric) {
  const auto points = run.epoch_values.find(metric.name);
  if (points == run.epoch_values.end()) return std::nullopt;
  std::optional<Point> best;
  for (const Point& point : points->second)
    if (metric.improves(point.value, best ? std::optional(best->value) : std::nullopt))
      best = point;
  return best;
}

std::optional<Point> first_reached(const RunLog& run, const Goal& goal) {
  const auto points = run.epoch_values.find(goal.metric.name);
  if (points == run.epoch_values.end() || !goal.value) return std::nullopt;
  const auto first = std::ranges::find_if(
      points->second, [&](const Point& point) { return is_reached(goal, point.value); });
  return first == points->second.end() ? std::nullopt : std::optional(*first);
}

double samples_per_second(const RunLog& run) {
  const auto epochs = run.epoch_values.find("samples_per_second");
  if (epochs != run.epoch_values.end() && !epochs->second.empty()) {
    // Excludes the first of several epochs, which starts slowly.
    const std::size_t first = epochs->second.size() > 1 ? 1 : 0;
    double sum = 0;
    for (std::size_t i = first; i < epochs->second.size(); ++i) sum += epochs->second[i].value;
    return sum / static_cast<double>(epochs->second.size() - first);
  }
  const auto steps = run.step_values.find("samples_per_second");
  return steps == run.step_values.end() ? 0 : steps->second.mean();
}

double cost_of(const RunLog& run, double seconds, double price) {
  double host_seconds = 0;
  for (std::size_t i = 0; i < run.hosts.size(); ++i) {
    const double end = i + 1 < run.hosts.size() ? run.hosts[i + 1].seconds : seconds;
    const double begin = i == 0 ? 0 : run.hosts[i].seconds;
    host_seconds += run.hosts[i].value * std::max(0.0, std::min(end, seconds) - begin);
  }
  return price * (run.hosts.empty() ? seconds : host_seconds) / 3600;
}

std::map<std::string, std::string> configuration_of(const RunLog& run) {
  std::map<std::string, std::string> settings;
  if (!run.start.is_object()) return settings;
  for (const auto& [name, value] : run.start.items())
    if (!value.is_structured() && !value.is_null() &&
        std::ranges::find(kNotSettings, name) == kNotSettings.end())
      settings[name] = text_of(value);
  if (const auto options = run.start.find("options");
      options != run.start.end() && options->is_object())
    for (const auto& [name, value] : options->items())
      if (!value.is_structured()) settings["--" + name] = text_of(value);
  return settings;
}

bool Setting::differs() const {
  return std::ranges::any_of(values,
                             [&](const std::string& value) { return value != values.front(); });
}

std::vector<Setting> settings_of(std::span<const RunLog> runs) {
  std::map<std::string, std::vector<std::string>> rows;  // "--" is before letters
  for (std::size_t i = 0; i < runs.size(); ++i)
    for (const auto& [name, value] : configuration_of(runs[i])) {
      auto& values = rows[name];
      values.resize(runs.size(), kMissing);
      values[i] = value;
    }
  std::vector<Setting> settings;
  for (auto& [name, values] : rows) settings.push_back({name, std::move(values)});
  return settings;
}

}  // namespace lockstep::inline v0::apps::report
