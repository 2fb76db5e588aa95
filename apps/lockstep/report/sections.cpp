#include "apps/lockstep/report/sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>

#include "apps/lockstep/report/chart.h"
#include "lockstep/base/text.h"

namespace lockstep::apps::report {
namespace {

constexpr std::string_view kOfValidation = "validation_";
constexpr const char* kRate = "samples_per_second";
constexpr std::size_t kMaxReplicaRows = 64;
constexpr std::size_t kMaxReplicaCurves = 8;
/// More occurrences, and more checkpoints, are not listed one by one.
constexpr std::size_t kMaxEvents = 200;
constexpr std::size_t kMaxCheckpoints = 20;

/// What a chart has on its horizontal axis.
struct Horizontal {
  bool is_time = false;
  TimeUnit unit = {"step", "", 1};

  double at(const Bin& bin) const { return is_time ? bin.seconds() / unit.seconds : bin.step(); }
  double at(const Point& point) const {
    return is_time ? point.seconds / unit.seconds : static_cast<double>(point.step);
  }
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

std::vector<ChartPoint> points_of(const Series& series, const Horizontal& x, double unit = 1) {
  std::vector<ChartPoint> points;
  for (const Bin& bin : series.coarse(kWidth))
    points.push_back({x.at(bin), bin.mean() / unit, bin.min / unit, bin.max / unit});
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

/// A curve of the metric over steps if the log has steps, else over its epochs.
Curve curve_of(const RunLog& run, const std::string& metric, const Horizontal& x) {
  Curve curve;
  if (const auto steps = run.step_values.find(metric); steps != run.step_values.end()) {
    curve.points = points_of(steps->second, x);
  } else if (const auto epochs = run.epoch_values.find(metric); epochs != run.epoch_values.end()) {
    curve.points = points_of(epochs->second, x);
    curve.has_dots = true;
  }
  return curve;
}

/// A curve of each run. `chart` has the title and what else is to be set.
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

/// Parts in the order of kBreakdownParts, then others by name.
std::vector<std::string> parts_of(const RunLog& run) {
  std::vector<std::string> parts;
  for (const char* part : kBreakdownParts)
    if (run.breakdown.contains(part)) parts.emplace_back(part);
  for (const auto& [name, series] : run.breakdown)
    if (std::ranges::find(parts, name) == parts.end()) parts.push_back(name);
  return parts;
}

int color_of_part(const std::string& part) {
  constexpr std::array<std::pair<std::string_view, int>, 7> kPartColors = {{{"input", 2},
                                                                            {"compute", 0},
                                                                            {"communication", 1},
                                                                            {"waiting", 3},
                                                                            {"update", 5},
                                                                            {"checkpoint", 4},
                                                                            {"other", kGray}}};
  const auto found = std::ranges::find(kPartColors, part, &std::pair<std::string_view, int>::first);
  return found == kPartColors.end() ? kGray : found->second;
}

std::string name_of_part(const RunLog& run, const std::string& part) {
  if (run.breakdown_is_derived && part == "compute") return "compute and everything else";
  if (part == "communication") return "communication, not overlapped";
  if (part == "waiting") return "waiting for slower replicas";
  return part;
}

std::string breakdown_of(const RunLog& run) {
  const std::vector<std::string> parts = parts_of(run);
  if (parts.empty())
    return "<p class=\"note\">This log has no events <code>step</code>, so it does not say where "
           "the time went.</p>";
  double total = 0;
  for (const std::string& part : parts) total += run.breakdown.at(part).mean();
  const TimeUnit unit = unit_for(total);
  Chart chart{.title = "Time of a step",
              .unit = std::string(unit.symbol),
              .x_end = static_cast<double>(run.steps),
              .begins_at_0 = true,
              .curves = {}};
  std::vector<BarPart> bar;
  const std::vector<Bin> bins = run.breakdown.at(parts.front()).coarse(kWidth);
  for (const std::string& part : parts) {
    const Series& series = run.breakdown.at(part);
    const std::vector<Bin> own = series.coarse(kWidth);
    Curve curve{.name = name_of_part(run, part), .color = color_of_part(part), .points = {}};
    for (std::size_t i = 0; i < bins.size(); ++i) {
      const double seconds =
          own.size() == bins.size() ? own[i].mean() : series.mean_at(bins[i].step());
      const double value = std::max(0.0, seconds / unit.seconds);
      curve.points.push_back({bins[i].step(), value, value, value});
    }
    chart.curves.push_back(std::move(curve));
    bar.push_back({name_of_part(run, part), color_of_part(part), std::max(0.0, series.mean()),
                   time_text(series.mean(), unit)});
  }
  std::string intervals;
  for (const auto& [bound, count] : run.bound_by)
    fmt::format_to(std::back_inserter(intervals), "{}{} in {}", intervals.empty() ? "" : ", ",
                   escape_html(bound), counted(count, "interval"));
  return fmt::format(
      "<div class=\"grid\">{}<div class=\"card\"><figcaption>Mean of all steps "
      "<span class=\"unit\">{} per step</span></figcaption>{}{}{}</div></div>",
      stacked_chart(chart), time_text(total), share_bar(bar),
      intervals.empty() ? "" : "<p class=\"note\">Bound by " + intervals + ".</p>",
      run.breakdown_is_derived
          ? "<p class=\"note\">This log was written without a breakdown of the step. The parts are "
            "computed from its waiting times and its rate of samples, on the first replica.</p>"
          : "");
}

std::string text_in(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  if (found == object.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->is_number() ? short_number(found->get<double>()) : std::string();
}

/// A bar of the times of a replica, in proportion to the slowest one.
std::string meter(const ReplicaTimes& times, double longest) {
  const auto part = [&](int color, double value, const char* name) {
    return fmt::format("<i class=\"k{}\" style=\"width:{:.2f}%\" title=\"{} {}\"></i>", color,
                       100 * std::clamp(value / longest, 0.0, 1.0), name, time_text(value / 1000));
  };
  return "<div class=\"meter\">" + part(2, times.input, "input") +
         part(0, times.compute, "compute") + part(3, times.waiting, "waiting") + "</div>";
}

std::string replica_table(const RunLog& run) {
  const nlohmann::json none = nlohmann::json::array();
  const auto found = run.start.is_object() ? run.start.find("devices") : run.start.end();
  const nlohmann::json& devices =
      run.start.is_object() && found != run.start.end() && found->is_array() ? *found : none;
  const std::size_t count = std::max(devices.size(), run.replicas.size());
  if (count == 0) return {};
  double longest = 0;
  for (const ReplicaTimes& times : run.replicas)
    longest = std::max(longest, times.input + times.compute + times.waiting);
  const TimeUnit unit = unit_for(longest / 1000);
  std::string rows;
  for (std::size_t i = 0; i < std::min(count, kMaxReplicaRows); ++i) {
    const nlohmann::json device = i < devices.size() ? devices[i] : nlohmann::json();
    const std::string gpu = text_in(device, "gpu");
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td class=\"number\">{}</td>", i,
        escape_html(text_in(device, "rank")), escape_html(text_in(device, "host")),
        escape_html(text_in(device, "device")), gpu.empty() ? "" : ", " + escape_html(gpu),
        escape_html(text_in(device, "cores")));
    if (!run.replicas.empty()) {
      const ReplicaTimes times = i < run.replicas.size() ? run.replicas[i] : ReplicaTimes();
      rows += fmt::format(
          "<td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>"
          "<td>{}</td>",
          time_text(times.input / 1000, unit), time_text(times.compute / 1000, unit),
          time_text(times.waiting / 1000, unit), longest > 0 ? meter(times, longest) : "");
    }
    rows += "</tr>";
  }
  const char* times = run.replicas.empty()
                          ? ""
                          : "<th class=\"number\">input</th><th class=\"number\">compute</th>"
                            "<th class=\"number\">waiting</th><th>time of a step</th>";
  return fmt::format(
      "<div class=\"scroll\"><table><thead><tr><th>replica</th><th>rank</th><th>host</th>"
      "<th>device</th><th class=\"number\">cores</th>{}</tr></thead><tbody>{}</tbody></table>"
      "</div>{}",
      times, rows,
      count > kMaxReplicaRows
          ? fmt::format("<p class=\"note\">{} more replicas are not listed.</p>",
                        count - kMaxReplicaRows)
          : "");
}

/// One sentence on the slowest replica, by the thresholds of the warnings of a training
/// (allreduce::StragglerReport).
std::string slowest_sentence(const RunLog& run) {
  if (run.replicas.size() < 2) return {};
  std::vector<double> busy;
  for (const ReplicaTimes& times : run.replicas) busy.push_back(times.input + times.compute);
  const auto slowest = std::ranges::max_element(busy);
  std::vector<double> others = busy;
  others.erase(others.begin() + (slowest - busy.begin()));
  const auto middle = others.begin() + static_cast<std::ptrdiff_t>(others.size() / 2);
  std::ranges::nth_element(others, middle);
  if (*slowest < 1.2 * *middle || *slowest < *middle + 1)
    return "<p>No replica was much slower than the others over the whole training.</p>";
  return fmt::format(
      "<p class=\"verdict\">Replica {} is the slowest: its steps take {}, {:.0f} % longer than the "
      "median of the others, which wait for it.</p>",
      slowest - busy.begin(), time_text(*slowest / 1000), 100 * (*slowest / *middle - 1));
}

std::string replica_chart(const RunLog& run) {
  if (run.replica_busy.size() < 2) return {};
  double longest = 0;
  std::vector<std::size_t> order(run.replica_busy.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
    longest = std::max(longest, run.replica_busy[i].mean() / 1000);
  }
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t i) { return run.replica_busy[i].mean(); });
  order.resize(std::min(order.size(), kMaxReplicaCurves));
  std::ranges::sort(order);
  const TimeUnit unit = unit_for(longest);
  Chart chart{.title = run.replica_busy.size() > order.size() ? "Busy time of the slowest replicas"
                                                              : "Busy time of the replicas",
              .unit = std::string(unit.symbol) + " per step, without waiting for others",
              .x_end = static_cast<double>(run.steps),
              .begins_at_0 = true,
              .curves = {}};
  for (std::size_t i = 0; i < order.size(); ++i)
    chart.curves.push_back(
        {.name = fmt::format("replica {}", order[i]),
         .color = static_cast<int>(i),
         .points = points_of(run.replica_busy[order[i]], {}, 1000 * unit.seconds)});
  return line_chart(chart);
}

/// Occurrences and checkpoints by time.
std::vector<Occurrence> events_of(const RunLog& run) {
  std::vector<Occurrence> events = run.occurrences;
  const auto pause = [](double seconds) {
    return seconds > 0 ? ", training paused for " + time_text(seconds) : std::string();
  };
  if (run.checkpoints.size() <= kMaxCheckpoints) {
    for (const Point& saved : run.checkpoints)
      events.push_back({saved.step, saved.seconds, "checkpoint" + pause(saved.value)});
  } else {
    double seconds = 0;
    for (const Point& saved : run.checkpoints) seconds += saved.value;
    events.push_back(
        {run.checkpoints.back().step, run.checkpoints.back().seconds,
         fmt::format(
             "the last of {} checkpoints{}", run.checkpoints.size(),
             seconds > 0 ? ", for all of which training paused for " + time_text(seconds) : "")});
  }
  std::ranges::stable_sort(events, {}, &Occurrence::seconds);
  return events;
}

std::string settings_table(std::span<const RunLog> runs, const std::vector<Setting>& settings) {
  std::string head;
  for (std::size_t i = 0; i < runs.size(); ++i)
    head += "<th>" + legend_entry(color_of_run(i), runs[i].name) + "</th>";
  std::string rows;
  for (const Setting& setting : settings) {
    rows += "<tr><th>" + escape_html(setting.name) + "</th>";
    for (const std::string& value : setting.values) rows += "<td>" + escape_html(value) + "</td>";
    rows += "</tr>";
  }
  return fmt::format(
      "<div class=\"scroll\"><table class=\"settings\">{}<tbody>{}</tbody></table></div>",
      runs.size() > 1 ? "<thead><tr><th></th>" + head + "</tr></thead>" : "", rows);
}

}  // namespace

int color_of_run(std::size_t run) {
  return static_cast<int>(run) + (run < kColors ? 0 : 1);  // kGray is no color of a run
}

std::string section(std::string_view heading, const std::string& content) {
  if (content.empty()) return {};
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", heading, content);
}

std::string run_heading(std::span<const RunLog> runs, std::size_t run) {
  if (runs.size() == 1) return {};
  return "<h3>" + legend_entry(color_of_run(run), runs[run].name) + "</h3>";
}

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

std::string breakdown_section(std::span<const RunLog> runs) {
  std::string content;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    content += run_heading(runs, i);
    if (!runs[i].verdict.empty())
      content += "<p class=\"verdict\">" + escape_html(runs[i].verdict) + "</p>";
    content += breakdown_of(runs[i]);
  }
  return section("Where the time of a step goes", content);
}

std::string replicas_section(std::span<const RunLog> runs) {
  std::string content;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string table = replica_table(runs[i]);
    if (table.empty()) continue;
    content += run_heading(runs, i) + slowest_sentence(runs[i]) + table;
    if (runs[i].replicas.empty() && runs[i].number("world_size") > 1)
      content += "<p class=\"note\">This log does not have the times of the replicas.</p>";
    if (const std::string chart = replica_chart(runs[i]); !chart.empty())
      content += "<div class=\"grid\" style=\"margin-top:16px\">" + chart + "</div>";
  }
  return section("Replicas", content);
}

std::string events_section(std::span<const RunLog> runs) {
  std::string content;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::vector<Occurrence> events = events_of(runs[i]);
    std::string rows;
    for (std::size_t k = 0; k < std::min(events.size(), kMaxEvents); ++k)
      rows += fmt::format(
          "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td></tr>",
          time_text(events[k].seconds), short_number(static_cast<double>(events[k].step)),
          escape_html(events[k].text));
    if (rows.empty()) continue;
    const std::int64_t left_out = runs[i].occurrences_left_out +
                                  static_cast<std::int64_t>(events.size()) -
                                  static_cast<std::int64_t>(std::min(events.size(), kMaxEvents));
    content += run_heading(runs, i) +
               "<div class=\"scroll\"><table><thead><tr><th class=\"number\" "
               "style=\"width:9em\">after</th><th class=\"number\" style=\"width:8em\">step</th>"
               "<th>event</th></tr></thead><tbody>" +
               rows + "</tbody></table></div>";
    if (left_out > 0)
      content +=
          fmt::format("<p class=\"note\">{} are not listed.</p>", counted(left_out, "more event"));
  }
  return section("Events", content);
}

std::string settings_section(std::span<const RunLog> runs) {
  std::vector<Setting> settings = settings_of(runs);
  if (settings.empty()) return {};
  if (runs.size() == 1) return section("Configuration", settings_table(runs, settings));
  const auto same = std::ranges::stable_partition(settings, &Setting::differs);
  const std::vector<Setting> equal(same.begin(), same.end());
  settings.erase(same.begin(), same.end());
  std::string content = settings.empty() ? "<p>All runs have the same configuration.</p>"
                                         : "<h3>Differences</h3>" + settings_table(runs, settings);
  if (!equal.empty())
    content += fmt::format(
        "<details><summary>{} that all runs have in common</summary>{}</details>",
        counted(static_cast<std::int64_t>(equal.size()), "setting"), settings_table(runs, equal));
  return section("Configuration", content);
}

}  // namespace lockstep::apps::report
