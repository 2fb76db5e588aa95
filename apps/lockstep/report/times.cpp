#include "apps/lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/lockstep/report/chart.h"
#include "apps/lockstep/report/text.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps::report {
namespace {

constexpr std::size_t kMaxReplicaRows = 64;
constexpr std::size_t kMaxReplicaCurves = 8;

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

std::string name_of_part(const std::string& part) {
  if (part == "communication") return "communication, not overlapped";
  if (part == "waiting") return "waiting for slower replicas";
  return part;
}

std::string breakdown_of(const RunLog& run) {
  const std::vector<std::string> parts = parts_of(run);
  if (parts.empty())
    return "<p class=\"note\">This log has no times of steps, so it does not show where the time "
           "went.</p>";
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
    Curve curve{.name = name_of_part(part), .color = color_of_part(part), .points = {}};
    for (std::size_t i = 0; i < bins.size(); ++i) {
      const double seconds =
          own.size() == bins.size() ? own[i].mean() : series.mean_at(bins[i].step());
      const double value = std::max(0.0, seconds / unit.seconds);
      curve.points.push_back({bins[i].step(), value, value, value});
    }
    chart.curves.push_back(std::move(curve));
    bar.push_back({name_of_part(part), color_of_part(part), std::max(0.0, series.mean()),
                   time_text(series.mean(), unit)});
  }
  std::string intervals;
  for (const auto& [bound, count] : run.bound_by)
    intervals += fmt::format("{}{} in {}", intervals.empty() ? "" : ", ", escape_html(bound),
                             counted(count, "interval"));
  // One interval is a chart without an area.
  return fmt::format(
      "<div class=\"grid\">{}<div class=\"card\"><figcaption>Mean of all steps "
      "<span class=\"unit\">{} per step</span></figcaption>{}{}</div></div>",
      bins.size() > 1 ? stacked_chart(chart) : "", time_text(total), share_bar(bar),
      intervals.empty() ? "" : "<p class=\"note\">Bound by " + intervals + ".</p>");
}

std::string member_text(const nlohmann::json& object, const char* key) {
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
  const nlohmann::json& start = run.last_start;  // the replicas to which the times belong
  const auto found = start.is_object() ? start.find("devices") : start.end();
  const nlohmann::json& devices =
      start.is_object() && found != start.end() && found->is_array() ? *found : none;
  const std::size_t count = std::max(devices.size(), run.replicas.size());
  if (count == 0) return {};
  double longest = 0;
  for (const ReplicaTimes& times : run.replicas)
    longest = std::max(longest, times.input + times.compute + times.waiting);
  const TimeUnit unit = unit_for(longest / 1000);
  std::string rows;
  for (std::size_t i = 0; i < std::min(count, kMaxReplicaRows); ++i) {
    const nlohmann::json device = i < devices.size() ? devices[i] : nlohmann::json();
    const std::string gpu = member_text(device, "gpu");
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}{}</td><td class=\"number\">{}</td>", i,
        escape_html(member_text(device, "rank")), escape_html(member_text(device, "host")),
        escape_html(member_text(device, "device")), gpu.empty() ? "" : ", " + escape_html(gpu),
        escape_html(member_text(device, "cores")));
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

/// A sentence about the slowest replica, with the thresholds of allreduce::StragglerReport.
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
  // Replicas without samples (if the global batch is smaller than their number) have a time of 0.
  const std::string longer =
      *middle > 0 ? fmt::format("{:.0f} % longer than", 100 * (*slowest / *middle - 1))
                  : time_text(*slowest / 1000) + " longer than";
  return fmt::format(
      "<p class=\"verdict\">Replica {} is the slowest: its steps take {}, {} the median of the "
      "others, which wait for it.</p>",
      slowest - busy.begin(), time_text(*slowest / 1000), longer);
}

/// Converts milliseconds to `unit`.
std::vector<ChartPoint> busy_points(const Series& series, const TimeUnit& unit) {
  const double factor = 1e-3 / unit.seconds;
  std::vector<ChartPoint> points;
  for (const Bin& bin : series.coarse(kWidth))
    points.push_back({bin.step(), factor * bin.mean(), factor * bin.min, factor * bin.max});
  return points;
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
    chart.curves.push_back({.name = fmt::format("replica {}", order[i]),
                            .color = static_cast<int>(i),
                            .points = busy_points(run.replica_busy[order[i]], unit)});
  return line_chart(chart);
}

}  // namespace

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

}  // namespace lockstep::inline v0::apps::report
