#include "apps/lockstep/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace lockstep::apps::doctor {
namespace {

std::string plural(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string line_of(const Finding& finding) {
  const std::string who = rank_list(finding.ranks);
  return fmt::format("  {:<8} {}{}{} -> {}\n", to_string(finding.level), who, who.empty() ? "" : ": ", finding.what,
                     finding.remedy);
}

}  // namespace

void Report::add(Outcome outcome) {
  const std::scoped_lock held(lock_);
  outcomes_.push_back(std::move(outcome));
}

std::vector<Outcome> Report::outcomes() const {
  const std::scoped_lock held(lock_);
  return outcomes_;
}

Level Report::level() const {
  Level worst = Level::ok;
  for (const Outcome& outcome : outcomes()) worst = std::max(worst, outcome.level());
  return worst;
}

int Report::nodes() const {
  std::set<int> nodes;
  for (const Place& place : places_) nodes.insert(place.node);
  return static_cast<int>(nodes.size());
}

std::string Report::table(double seconds) const {
  std::string text =
      fmt::format("lockstep doctor: {} on {}\n\n{:<16} {:<8} {}\n", plural(places_.size(), "rank"),
                  plural(static_cast<std::size_t>(nodes()), "host"), "check", "result", "what was found");
  std::array<std::size_t, 4> counts{};
  for (const Outcome& outcome : outcomes()) {
    text += fmt::format("{:<16} {:<8} {}\n", outcome.check, to_string(outcome.level()), outcome.summary);
    for (const Finding& finding : outcome.findings) {
      text += line_of(finding);
      ++counts[static_cast<std::size_t>(finding.level)];
    }
  }
  const std::size_t problems = counts[static_cast<std::size_t>(Level::problem)];
  const std::size_t warnings = counts[static_cast<std::size_t>(Level::warning)];
  text += fmt::format("\n{}, {}; {:.1f} s\n", problems == 0 ? "nothing is wrong" : plural(problems, "problem"),
                      plural(warnings, "warning"), seconds);
  return text;
}

nlohmann::ordered_json Report::json(double seconds) const {
  nlohmann::ordered_json report = {{"status", to_string(level())}, {"seconds", seconds}};
  report["ranks"] = nlohmann::ordered_json::array();
  for (const Place& place : places_)
    report["ranks"].push_back({{"rank", place.rank}, {"host", place.host}, {"node", place.node}});
  report["checks"] = nlohmann::ordered_json::array();
  report["findings"] = nlohmann::ordered_json::array();
  for (const Outcome& outcome : outcomes()) {
    report["checks"].push_back(
        {{"check", outcome.check}, {"level", to_string(outcome.level())}, {"summary", outcome.summary}});
    for (const Finding& finding : outcome.findings)
      report["findings"].push_back({{"check", outcome.check},
                                    {"level", to_string(finding.level)},
                                    {"ranks", finding.ranks},
                                    {"what", finding.what},
                                    {"remedy", finding.remedy}});
  }
  return report;
}

}  // namespace lockstep::apps::doctor
