// The results of checks, and the report of `lockstep doctor`: a table for users, or a JSON object
// for scripts.
#pragma once

#include <cstdint>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::apps::doctor {

/// `skipped`: the check was not requested, or there is nothing to compare. `warning`: affects speed
/// or convenience. `problem`: ends a training, or makes it useless.
enum class Level { skipped, ok, warning, problem };

/// "skipped", "ok", …
const char* to_string(Level level);

/// A problem or warning.
struct Finding {
  std::vector<int> ranks = {};  ///< affected ranks, ascending; empty: the whole job
  Level level = Level::warning;
  std::string what = {};    ///< what was found, with figures; without a full stop
  std::string remedy = {};  ///< what to do, such as a command; without a full stop

  bool operator==(const Finding&) const = default;
};

/// Where a rank is.
struct Place {
  int rank = 0;
  int node = 0;
  int local_rank = 0;
  std::string host = {};

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(Place, rank, node, local_rank, host)
};

/// The result of a check: one row of the table.
struct Outcome {
  std::string check = {};              ///< name of the check, stable for scripts
  std::string summary = {};            ///< facts about the machine, also if there are no findings
  std::vector<Finding> findings = {};  ///< ordered by their first rank
  bool skipped = false;

  /// The worst level of the findings.
  Level level() const;
  /// Adds a finding. If the same finding exists for other ranks, adds only the ranks to it.
  void add(Finding finding);
  void warn(const Place& place, std::string what, std::string remedy);
  void fail(const Place& place, std::string what, std::string remedy);  ///< adds a problem
};

/// A skipped outcome for a check that requires an option, such as "--data SPEC".
Outcome skipped_without(const std::string& check, const std::string& option);

/// "rank 3", "ranks 0-2,5"; empty for none.
std::string rank_list(const std::vector<int>& ranks);

/// 10^9, 10^6 or 10^3 bytes and their unit, with three digits: "1.50 GB".
std::string human_bytes(std::int64_t bytes);

/// Collects outcomes. Thread-safe.
class Report {
 public:
  explicit Report(std::vector<Place> places) : places_(std::move(places)) {}

  void add(Outcome outcome);
  /// The worst level of the outcomes; ok if there is none.
  Level level() const;

  /// One row per check, with one line per finding below it: "  problem  rank 1: WHAT -> REMEDY".
  /// The last line is a summary.
  std::string table(double seconds) const;
  /// {"status", "seconds", "ranks": [{"rank", "host", "node"}], "checks": [{"check", "level",
  /// "summary"}], "findings":
  /// [{"check", "level", "ranks", "what", "remedy"}]}
  nlohmann::ordered_json json(double seconds) const;

 private:
  std::vector<Outcome> outcomes() const;
  int nodes() const;

  std::vector<Place> places_;
  mutable std::mutex lock_;
  std::vector<Outcome> outcomes_;
};

}  // namespace lockstep::inline v0::apps::doctor
