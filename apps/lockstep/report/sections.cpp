#include "apps/lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/lockstep/report/chart.h"
#include "apps/lockstep/report/text.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps::report {
namespace {

/// Maximum number of occurrences, and of checkpoints, that are listed individually.
constexpr std::size_t kMaxEvents = 200;
constexpr std::size_t kMaxCheckpoints = 20;

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
  const auto same = std::stable_partition(settings.begin(), settings.end(),
                                          [](const Setting& one) { return one.differs(); });
  const std::vector<Setting> equal(same, settings.end());
  settings.erase(same, settings.end());
  std::string content = settings.empty() ? "<p>All runs have the same configuration.</p>"
                                         : "<h3>Differences</h3>" + settings_table(runs, settings);
  if (!equal.empty())
    content += fmt::format(
        "<details><summary>{} that all runs have in common</summary>{}</details>",
        counted(static_cast<std::int64_t>(equal.size()), "setting"), settings_table(runs, equal));
  return section("Configuration", content);
}

}  // namespace lockstep::inline v0::apps::report
