// What the doctor says in the end: a table for people, or an object for scripts.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/finding.h"
#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// Gathers outcomes; may be read by another thread at any time.
class Report {
 public:
  explicit Report(std::vector<Place> places) : places_(std::move(places)) {}

  void add(Outcome outcome);
  /// That of the worst outcome; ok where there is none.
  Level level() const;

  /// A row for each check, and below it a line for each finding: "  problem  rank 1 on host b: WHAT -> REMEDY". Ends
  /// with a line that sums up.
  std::string table(double seconds) const;
  /// {"status", "seconds", "ranks": [{"rank", "host", "node"}], "checks": [{"check", "level", "summary"}], "findings":
  /// [{"check", "level", "ranks", "what", "remedy"}]}
  nlohmann::ordered_json json(double seconds) const;

 private:
  std::vector<Outcome> outcomes() const;
  int nodes() const;

  std::vector<Place> places_;
  mutable std::mutex lock_;
  std::vector<Outcome> outcomes_;
};

}  // namespace lockstep::apps::doctor
