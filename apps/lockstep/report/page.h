// A report as one HTML page.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/lockstep/report/comparison.h"
#include "apps/lockstep/report/run_log.h"

namespace lockstep::apps::report {

inline constexpr std::size_t kMaxRuns = 16;  ///< that can be told apart: 8 colors, solid and dashed

/// What a report shows beside the logs.
struct PageOptions {
  std::optional<Goal> goal;    ///< nullopt: choose_goal()
  std::vector<double> prices;  ///< per host and hour: none, one, or one of each run
};

/// The page, without external resources: 1 to kMaxRuns runs. Throws Error (input) if no run has the
/// metric of the goal.
std::string report_page(std::span<const RunLog> runs, const PageOptions& options);

}  // namespace lockstep::apps::report
