// A report as one HTML page, and the sections that it consists of.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/report/comparison.h"
#include "apps/lockstep/report/run_log.h"

namespace lockstep::apps::report {

inline constexpr std::size_t kMaxRuns = 16;  ///< that can be told apart: 8 colors, solid and dashed

/// What a report is made with, in addition to the logs.
struct PageOptions {
  std::optional<Goal> goal;    ///< nullopt: choose_goal()
  std::vector<double> prices;  ///< per host and hour: none, one, or one of each run
};

/// The page, without external resources: 1 to kMaxRuns runs. Throws Error (input) if no run has the
/// metric of the goal.
std::string report_page(std::span<const RunLog> runs, const PageOptions& options);

/// Curves of the metrics, the rate of samples, the learning rate and the like.
std::string curves_section(std::span<const RunLog> runs, const std::optional<Goal>& goal);
/// Where the time of a step goes.
std::string breakdown_section(std::span<const RunLog> runs);
/// Replicas, their hosts, and their times.
std::string replicas_section(std::span<const RunLog> runs);
/// Starts, checkpoints, skipped steps, damaged records, ends.
std::string events_section(std::span<const RunLog> runs);
/// How the trainings were configured, differences first.
std::string settings_section(std::span<const RunLog> runs);

/// A section with its heading; empty if `content` is.
std::string section(std::string_view heading, const std::string& content);
/// The color of the curves of run number `run`.
int color_of_run(std::size_t run);
/// A heading with the name and color of a run, if there are several.
std::string run_heading(std::span<const RunLog> runs, std::size_t run);

}  // namespace lockstep::apps::report
