#include "apps/lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "apps/lockstep/report/chart.h"
#include "apps/lockstep/report/text.h"

namespace lockstep::inline v0::apps::report {
namespace {

constexpr std::string_view kOfValidation = "validation_";
constexpr const char* kRate = "samples_per_second";

/// The horizontal axis of a chart.
struct Horizontal {
  bool is_time = false;
  TimeUnit unit = {"step", "", 1};

  double at(const Bin& bin) const { return is_time ? bin.seconds() / unit.seconds : bin.step(); }
};

Horizontal time_of(std::span<const RunLog> runs) {
  double longest = 0;
  for (const RunLog& run : runs) longest = std::max(longest, run.seconds);
  return {.is_time = true, .unit = unit_for(std::max(longest, 1.0))};
}

double last_step_of(std::span<const RunLog> runs) {
  std::int64_t last = 0;
  for (const RunLog& run : runs) last = std::max(last, run.steps);
  return static_cast<double>(last);
}

std::vector<ChartPoint> points_of(const Series& series, const Horizontal& x) {
  std::vector<ChartPoint> points;
  for (const Bin& bin : series.coarse(kWidth))
    points.push_back({x.at(bin), bin.mean(), bin.min, bin.max});
  return points;
}

std::vector<ChartPoint> points_of(const std::vector<Point>& values, const Horizontal& x) {
  Series series;
  for (const Point& point : values) series.add(point);
  return points_of(series, x);
}

/// "validation_top5_accuracy" as "Validation top5 accuracy".
std::string title_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z')
    name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

/// A curve of the metric over its steps, or over its epochs if the log has more of these.
Curve curve_of(const RunLog& run, const std::string& metric, const Horizontal& x) {
  Curve curve;
  const auto steps = run.step_values.find(metric);
  const auto epochs = run.epoch_values.find(metric);
  const bool has_steps = steps != run.step_values.end();
  if (epochs != run.epoch_values.end() &&
      (!has_steps || steps->second.points() < std::ssize(epochs->second))) {
    curve.points = points_of(epochs->second, x);
    curve.has_dots = true;
  } else if (has_steps) {
    curve.points = points_of(steps->second, x);
  }
  return curve;
}

/// Adds a curve of each run to `chart`, which has the title and the other settings.
std::string run_chart(std::span<const RunLog> runs, const std::string& metric, Chart chart,
                      const Horizontal& x = {}) {
  chart.x_name = x.unit.name;
  if (!x.is_time) chart.x_end = last_step_of(runs);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Curve curve = curve_of(runs[i], metric, x);
    curve.name = runs[i].name;
    curve.color = color_of_run(i);
    chart.curves.push_back(std::move(curve));
  }
  return line_chart(chart);
}

/// The metric of the training and that of the validation in one chart.
std::string pair_chart(const RunLog& run, const std::string& metric) {
  Chart chart{.title = title_of(metric), .x_end = last_step_of({&run, 1}), .curves = {}};
  for (const std::string& name : {metric, std::string(kOfValidation) + metric}) {
    Curve curve = curve_of(run, name, {});
    curve.name = name == metric ? "training" : "validation";
    curve.color = name == metric ? 0 : 1;
    chart.curves.push_back(std::move(curve));
  }
  return line_chart(chart);
}

/// Names of metrics, without the prefix of the validation: loss and accuracy first.
std::vector<std::string> metrics_of(std::span<const RunLog> runs) {
  std::set<std::string> names;
  for (const RunLog& run : runs) {
    for (const auto& [name, points] : run.epoch_values) names.insert(name);
    for (const auto& [name, series] : run.step_values) names.insert(name);
  }
  for (const char* other : {kRate, "learning_rate", "gradient_norm", "loss_scale"})
    names.erase(other);
  std::vector<std::string> metrics;
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(metrics, name) == metrics.end()) metrics.push_back(name);
  };
  const auto base = [](const std::string& name) {
    return name.starts_with(kOfValidation) ? name.substr(kOfValidation.size()) : name;
  };
  for (const char* first : {"loss", "accuracy"})
    if (std::ranges::any_of(names, [&](const std::string& name) { return base(name) == first; }))
      add(first);
  for (const std::string& name : names) add(base(name));
  return metrics;
}

}  // namespace

std::string curves_section(std::span<const RunLog> runs, const std::optional<Goal>& goal) {
  std::string charts;
  for (const std::string& metric : metrics_of(runs)) {
    if (runs.size() == 1) {
      charts += pair_chart(runs.front(), metric);
      continue;
    }
    charts +=
        run_chart(runs, metric, {.title = title_of(metric), .unit = "training", .curves = {}});
    const std::string validated = std::string(kOfValidation) + metric;
    charts += run_chart(runs, validated, {.title = title_of(validated), .curves = {}});
    for (const std::string& name : {metric, validated})
      if (goal && goal->metric.name == name)
        charts += run_chart(runs, name, {.title = title_of(name) + " over time", .curves = {}},
                            time_of(runs));
  }
  const auto add = [&](const char* name, const char* title, const char* unit) {
    charts +=
        run_chart(runs, name, {.title = title, .unit = unit, .begins_at_0 = true, .curves = {}});
  };
  add(kRate, "Samples per second", "all replicas");
  add("learning_rate", "Learning rate", "");
  add("gradient_norm", "Gradient norm", "before clipping");
  add("loss_scale", "Loss scale", "");
  if (charts.empty()) return {};
  return section("Curves", "<div class=\"grid\">" + charts + "</div>");
}

}  // namespace lockstep::inline v0::apps::report
