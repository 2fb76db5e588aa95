// What a check has found, and what to do about it.
#pragma once

#include <string>
#include <vector>

namespace lockstep::apps::doctor {

/// `skipped`: nothing was asked, or there is nothing to compare. A `warning` costs speed or comfort; a `problem` will
/// end a run, or make it useless.
enum class Level { skipped, ok, warning, problem };

/// "skipped", "ok", …
const char* to_string(Level level);

/// One thing that is not as it should be.
struct Finding {
  std::vector<int> ranks = {};  ///< that it concerns, ascending; empty: the job as a whole
  Level level = Level::warning;
  std::string what = {};    ///< what was found, with its figures; no full stop
  std::string remedy = {};  ///< what to do, such as a command; no full stop

  bool operator==(const Finding&) const = default;
};

/// One row of the table.
struct Outcome {
  std::string check = {};              ///< its name, a promise to scripts
  std::string summary = {};            ///< what is true of the machine, also where nothing was found
  std::vector<Finding> findings = {};  ///< in the order of their first ranks
  bool skipped = false;

  /// That of the worst finding.
  Level level() const;
  /// Adds a finding; where the same was found on other ranks before, its ranks alone.
  void add(Finding finding);
};

/// Of a check that needs an option of the user's: "--data SPEC".
Outcome not_asked_for(const std::string& check, const std::string& option);

/// "rank 3", "ranks 0-2,5"; empty for none.
std::string rank_list(const std::vector<int>& ranks);

/// 10^9, 10^6 or 10^3 bytes and their unit, with three digits: "1.50 GB".
std::string human_bytes(double bytes);

}  // namespace lockstep::apps::doctor
