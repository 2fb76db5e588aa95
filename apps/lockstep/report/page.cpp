#include "apps/lockstep/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "apps/lockstep/report/chart.h"
#include "apps/lockstep/report/page_style.h"
#include "apps/lockstep/report/text.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps::report {
namespace {

constexpr const char* kNothing = "–";

std::string count_text(double count) { return count > 0 ? short_number(count) : kNothing; }

/// "4 replicas on 2 hosts".
std::string place_text(const RunLog& run) {
  const auto replicas = static_cast<std::int64_t>(run.last_number("world_size"));
  const auto nodes = static_cast<std::int64_t>(run.last_number("nodes"));
  if (replicas == 0) return kNothing;
  return counted(replicas, "replica") + " on " + counted(std::max<std::int64_t>(nodes, 1), "host");
}

std::string steps_text(const RunLog& run) {
  const double last = run.number("last_step");
  const auto steps = static_cast<double>(run.steps);
  return last > steps ? fmt::format("{} of {}", count_text(steps), count_text(last))
                      : count_text(steps);
}

std::string status_html(const RunLog& run) {
  const std::string status = run.status();
  const char* kind = status == "diverged" ? "bad" : run.is_finished() ? "good" : "";
  return fmt::format("<span class=\"{}\">{}</span>", kind, escape_html(status));
}

double price_of(const PageOptions& options, std::size_t run) {
  return options.prices.size() == 1 ? options.prices.front() : options.prices.at(run);
}

/// The name of a metric in words, for HTML.
std::string words_of(std::string name) {
  std::ranges::replace(name, '_', ' ');
  return escape_html(name);
}

std::string cost_text(double cost) {
  return cost < 1 ? short_number(cost) : fmt::format("{:.2f}", cost);
}

std::string best_text(const RunLog& run, const Goal& goal) {
  const auto best = best_point(run, goal.metric);
  return best ? fmt::format("{} <small>step {}</small>", short_number(best->value),
                            short_number(static_cast<double>(best->step)))
              : kNothing;
}

std::string tile(const std::string& value, std::string_view name, const std::string& more = {}) {
  return fmt::format("<div class=\"tile\"><span>{}</span><b>{}</b>{}</div>", name, value,
                     more.empty() ? "" : "<small>" + more + "</small>");
}

/// The numbers of one run.
std::string tiles(const RunLog& run, const std::optional<Goal>& goal, const PageOptions& options) {
  std::string html = tile(status_html(run), "status", steps_text(run) + " steps");
  html += tile(time_text(run.seconds), "time", "from the start");
  html += tile(count_text(samples_per_second(run)), "samples per second", place_text(run));
  if (const std::string model = run.text("model"); !model.empty())
    html += tile(escape_html(model), "model", count_text(run.number("parameters")) + " parameters");
  if (goal) {
    const auto best = best_point(run, goal->metric);
    if (best)
      html += tile(short_number(best->value), "best " + words_of(goal->metric.name),
                   fmt::format("at step {}", short_number(static_cast<double>(best->step))));
    const auto reached = first_reached(run, *goal);
    if (options.goal && options.goal->value)
      html +=
          tile(reached ? time_text(reached->seconds) : "not reached",
               "time to " + words_of(goal->text()),
               reached ? fmt::format("at step {}", short_number(static_cast<double>(reached->step)))
                       : "");
  }
  if (!options.prices.empty())
    html += tile(cost_text(cost_of(run, run.seconds, price_of(options, 0))), "cost",
                 fmt::format("at {} per host and hour", short_number(price_of(options, 0))));
  return "<div class=\"tiles\">" + html + "</div>";
}

/// The table of several runs: a row for each quantity.
class Comparison {
 public:
  explicit Comparison(std::span<const RunLog> runs) : runs_(runs) {}

  using Text = std::function<std::string(const RunLog&, std::size_t)>;
  using Number = std::function<std::optional<double>(const RunLog&, std::size_t)>;

  /// The cells are HTML.
  void add(const std::string& name, const Text& text) { add(name, text, nullptr, false); }

  /// The best of the numbers is bold.
  void add(const std::string& name, const Text& text, const Number& number, bool is_max_best) {
    std::optional<double> best;
    std::set<double> values;
    for (std::size_t i = 0; number && i < runs_.size(); ++i)
      if (const auto value = number(runs_[i], i)) {
        values.insert(*value);
        if (!best || (is_max_best ? *value > *best : *value < *best)) best = value;
      }
    rows_ += "<tr><th>" + name + "</th>";
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const bool is_best = values.size() > 1 && number && number(runs_[i], i) == best;
      rows_ += fmt::format("<td{}>{}</td>", is_best ? " class=\"best\"" : "", text(runs_[i], i));
    }
    rows_ += "</tr>";
  }

  std::string html() const {
    std::string head;
    for (std::size_t i = 0; i < runs_.size(); ++i)
      head += "<th>" + legend_entry(color_of_run(i), runs_[i].name) + "</th>";
    return "<div class=\"scroll\" style=\"margin-top:20px\"><table><thead><tr><th></th>" + head +
           "</tr></thead><tbody>" + rows_ + "</tbody></table></div>";
  }

 private:
  std::span<const RunLog> runs_;
  std::string rows_;
};

std::optional<double> reached_after(const RunLog& run, const Goal& goal) {
  const auto reached = first_reached(run, goal);
  return reached ? std::optional(reached->seconds) : std::nullopt;
}

std::string comparison(std::span<const RunLog> runs, const std::optional<Goal>& goal,
                       const PageOptions& options) {
  Comparison table(runs);
  const auto escaped = [](const char* key) {
    return [key](const RunLog& run, std::size_t) {
      const std::string text = run.text(key);
      return text.empty() ? std::string(kNothing) : escape_html(text);
    };
  };
  table.add("status", [](const RunLog& run, std::size_t) { return status_html(run); });
  table.add("model", escaped("model"));
  table.add("replicas", [](const RunLog& run, std::size_t) { return place_text(run); });
  table.add("global batch", escaped("global_batch"));
  table.add("steps", [](const RunLog& run, std::size_t) { return steps_text(run); });
  table.add("time", [](const RunLog& run, std::size_t) { return time_text(run.seconds); });
  const double first_rate = samples_per_second(runs.front());
  table.add(
      "samples per second",
      [&](const RunLog& run, std::size_t i) {
        const double rate = samples_per_second(run);
        return count_text(rate) +
               (i > 0 && rate > 0 && first_rate > 0
                    ? fmt::format(" <small>{:.2f} × the first</small>", rate / first_rate)
                    : "");
      },
      [](const RunLog& run, std::size_t) { return samples_per_second(run); }, true);
  if (goal) {
    const bool is_max = goal->metric.improves(1, 0);
    table.add(
        "best " + words_of(goal->metric.name),
        [&](const RunLog& run, std::size_t) { return best_text(run, *goal); },
        [&](const RunLog& run, std::size_t) -> std::optional<double> {
          const auto best = best_point(run, goal->metric);
          return best ? std::optional(best->value) : std::nullopt;
        },
        is_max);
  }
  if (goal && goal->value)
    table.add(
        "time to " + words_of(goal->text()),
        [&](const RunLog& run, std::size_t) {
          const auto reached = first_reached(run, *goal);
          return reached ? fmt::format("{} <small>step {}</small>", time_text(reached->seconds),
                                       short_number(static_cast<double>(reached->step)))
                         : std::string("not reached");
        },
        [&](const RunLog& run, std::size_t) { return reached_after(run, *goal); }, false);
  if (!options.prices.empty()) {
    table.add("cost <small>at the price per host and hour</small>", [&](const RunLog& run,
                                                                        std::size_t i) {
      const double price = price_of(options, i);
      return fmt::format("{} <small>at {}</small>", cost_text(cost_of(run, run.seconds, price)),
                         short_number(price));
    });
    if (goal && goal->value) {
      const auto cost = [&](const RunLog& run, std::size_t i) -> std::optional<double> {
        const auto seconds = reached_after(run, *goal);
        if (!seconds) return std::nullopt;
        return cost_of(run, *seconds, price_of(options, i));
      };
      table.add(
          "cost to " + words_of(goal->text()),
          [&](const RunLog& run, std::size_t i) {
            const auto value = cost(run, i);
            return value ? cost_text(*value) : std::string(kNothing);
          },
          cost, false);
    }
  }
  table.add("parameter hash", [&](const RunLog& run, std::size_t) {
    const auto found = run.end.is_object() ? run.end.find("parameter_hash") : run.end.end();
    return run.end.is_object() && found != run.end.end() && found->is_string()
               ? "<code>" + escape_html(found->get<std::string>()) + "</code>"
               : std::string(kNothing);
  });
  return table.html();
}

/// Notes on incomplete or damaged logs.
std::string notes_of(std::span<const RunLog> runs) {
  std::string notes;
  const auto add = [&](const RunLog& run, const std::string& what) {
    notes += fmt::format("<p class=\"note\">{}{}.</p>",
                         runs.size() > 1 ? "<b>" + escape_html(run.name) + "</b>: " : "", what);
  };
  for (const RunLog& run : runs) {
    if (run.start.is_null()) add(run, "The log does not have its beginning");
    if (run.is_cut_off)
      add(run,
          "The last line of the log is incomplete: the training was writing it, or was "
          "killed meanwhile");
    if (run.damaged_lines > 0)
      add(run, fmt::format("{} of the log {} no event, the first is line {}",
                           counted(run.damaged_lines, "line"),
                           run.damaged_lines == 1 ? "is" : "are", run.first_damaged));
    if (run.runs > 1)
      add(run, fmt::format("The log has {} runs of this training; steps that were repeated are "
                           "shown once",
                           run.runs));
    else if (const double first = run.number("first_step"); first > 0)
      add(run, fmt::format("The log begins at step {}, where the training was resumed",
                           short_number(first)));
  }
  return notes;
}

std::string names_of(std::span<const RunLog> runs) {
  std::string names;
  for (const RunLog& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  return escape_html(names);
}

}  // namespace

std::string report_page(std::span<const RunLog> runs, const PageOptions& options) {
  const std::optional<Goal> goal = choose_goal(runs, options.goal);
  const std::string names = names_of(runs);
  std::string data = runs.front().text("data");
  if (const std::string model = runs.front().text("model"); !model.empty())
    data = model + " on " + data;
  const std::string subtitle = runs.size() == 1 ? escape_html(data) : names;
  std::string body = fmt::format(
      "<h1>{}</h1>\n<p>{}</p>\n",
      runs.size() == 1 ? "Training " + names : fmt::format("{} trainings", runs.size()), subtitle);
  body += runs.size() == 1 ? tiles(runs.front(), goal, options) : comparison(runs, goal, options);
  body += notes_of(runs);
  body += curves_section(runs, goal);
  body += breakdown_section(runs);
  body += replicas_section(runs);
  body += events_section(runs);
  body += settings_section(runs);
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{} – Lockstep</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n{}"
      "<footer>Written by lockstep report. Curves are means; the pale bands are the range of all "
      "values.</footer>\n</main>\n<script>{}</script>\n</body>\n</html>\n",
      names, kStyleSheet, body, kScript);
}

}  // namespace lockstep::inline v0::apps::report
