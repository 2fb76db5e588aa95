#include "apps/lockstep/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace lockstep::apps::doctor {

const char* to_string(Level level) {
  switch (level) {
    case Level::skipped:
      return "skipped";
    case Level::ok:
      return "ok";
    case Level::warning:
      return "warning";
    case Level::problem:
      return "problem";
  }
  return "?";
}

Level Outcome::level() const {
  Level worst = skipped ? Level::skipped : Level::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.level);
  return worst;
}

void Outcome::add(Finding finding) {
  const auto same = std::ranges::find_if(findings, [&](const Finding& other) {
    return other.level == finding.level && other.what == finding.what && other.remedy == finding.remedy;
  });
  if (same == findings.end()) {
    findings.push_back(std::move(finding));
    return;
  }
  same->ranks.insert(same->ranks.end(), finding.ranks.begin(), finding.ranks.end());
  std::ranges::sort(same->ranks);
  same->ranks.erase(std::unique(same->ranks.begin(), same->ranks.end()), same->ranks.end());
}

Outcome not_asked_for(const std::string& check, const std::string& option) {
  return {.check = check, .summary = "not requested: " + option, .skipped = true};
}

std::string rank_list(const std::vector<int>& ranks) {
  if (ranks.empty()) return "";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t begin = 0; begin < ranks.size();) {
    std::size_t end = begin + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (begin > 0) text += ',';
    text += std::to_string(ranks[begin]);
    if (end - begin > 1) text += fmt::format("-{}", ranks[end - 1]);
    begin = end;
  }
  return text;
}

std::string human_bytes(double bytes) {
  constexpr double kStep = 1000;
  const char* unit = "bytes";
  for (const char* next : {"kB", "MB", "GB", "TB"}) {
    if (bytes < kStep) break;
    bytes /= kStep;
    unit = next;
  }
  return fmt::format("{:.3g} {}", bytes, unit);
}

}  // namespace lockstep::apps::doctor
