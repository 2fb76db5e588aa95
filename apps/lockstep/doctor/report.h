// The report of `lockstep doctor`: a table for users, or a JSON object for scripts.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/finding.h"
#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// Collects outcomes. Thread-safe.
class Report {
 public:
  explicit Report(std::vector<Place> places) : places_(std::move(places)) {}

  void add(Outcome outcome);
  /// The worst level of the outcomes; ok if there is none.
  Level level() const;

  /// One row per check, with one line per finding below it: "  problem  rank 1: WHAT -> REMEDY". The last line is a
  /// summary.
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
