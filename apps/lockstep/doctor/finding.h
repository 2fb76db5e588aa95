// The results of checks.
#pragma once

#include <string>
#include <vector>

namespace lockstep::apps::doctor {

/// `skipped`: the check was not requested, or there is nothing to compare. `warning`: costs speed or convenience.
/// `problem`: ends a run, or makes it useless.
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
};

/// A skipped outcome for a check that requires an option, such as "--data SPEC".
Outcome not_asked_for(const std::string& check, const std::string& option);

/// "rank 3", "ranks 0-2,5"; empty for none.
std::string rank_list(const std::vector<int>& ranks);

/// 10^9, 10^6 or 10^3 bytes and their unit, with three digits: "1.50 GB".
std::string human_bytes(double bytes);

}  // namespace lockstep::apps::doctor
