#include "apps/lockstep/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps::doctor {

const char* to_string(Level level) {
  constexpr std::array kNames = {"skipped", "ok", "warning", "problem"};
  return kNames[static_cast<std::size_t>(level)];
}

Level Outcome::level() const {
  Level worst = skipped ? Level::skipped : Level::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.level);
  return worst;
}

void Outcome::add(Finding finding) {
  const auto same = std::ranges::find_if(findings, [&](const Finding& other) {
    return other.level == finding.level && other.what == finding.what &&
           other.remedy == finding.remedy;
  });
  if (same == findings.end()) {
    findings.push_back(std::move(finding));
    return;
  }
  same->ranks.insert(same->ranks.end(), finding.ranks.begin(), finding.ranks.end());
  std::ranges::sort(same->ranks);
  same->ranks.erase(std::unique(same->ranks.begin(), same->ranks.end()), same->ranks.end());
}

void Outcome::warn(const Place& place, std::string what, std::string remedy) {
  add({{place.rank}, Level::warning, std::move(what), std::move(remedy)});
}

void Outcome::fail(const Place& place, std::string what, std::string remedy) {
  add({{place.rank}, Level::problem, std::move(what), std::move(remedy)});
}

Outcome skipped_without(const std::string& check, const std::string& option) {
  return {.check = check, .summary = "not requested: " + option, .skipped = true};
}

std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  return (ranks.size() == 1 ? "rank " : "ranks ") + number_list(ranks);
}

std::string human_bytes(std::int64_t bytes) {
  constexpr double kStep = 1000;
  auto value = static_cast<double>(bytes);
  const char* unit = "bytes";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (value < kStep) break;
    value /= kStep;
    unit = next;
  }
  return fmt::format("{:.3g} {}", value, unit);
}

namespace {

std::string line_of(const Finding& finding) {
  const std::string who = rank_list(finding.ranks);
  return fmt::format("  {:<8} {}{}{} -> {}\n", to_string(finding.level), who,
                     who.empty() ? "" : ": ", printable(finding.what), printable(finding.remedy));
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
      fmt::format("lockstep doctor: {} on {}\n\n{:<16} {:<8} {}\n", counted(places_.size(), "rank"),
                  counted(nodes(), "host"), "check", "result", "what was found");
  std::array<std::int64_t, 4> counts{};
  for (const Outcome& outcome : outcomes()) {
    text += fmt::format("{:<16} {:<8} {}\n", outcome.check, to_string(outcome.level()),
                        printable(outcome.summary));
    for (const Finding& finding : outcome.findings) {
      text += line_of(finding);
      ++counts[static_cast<std::size_t>(finding.level)];
    }
  }
  const auto [skipped, ok, warnings, problems] = counts;
  text += fmt::format("\n{}, {}; {:.1f} s\n",
                      problems == 0 ? "nothing is wrong" : counted(problems, "problem"),
                      counted(warnings, "warning"), seconds);
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
    report["checks"].push_back({{"check", outcome.check},
                                {"level", to_string(outcome.level())},
                                {"summary", outcome.summary}});
    for (const Finding& finding : outcome.findings)
      report["findings"].push_back({{"check", outcome.check},
                                    {"level", to_string(finding.level)},
                                    {"ranks", finding.ranks},
                                    {"what", finding.what},
                                    {"remedy", finding.remedy}});
  }
  return report;
}

}  // namespace lockstep::inline v0::apps::doctor
