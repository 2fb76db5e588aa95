// A report as one HTML page, and the sections that it consists of.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/report/comparison.h"
#include "apps/lockstep/report/run_log.h"

namespace lockstep::inline v0::apps::report {

inline constexpr std::size_t kMaxRuns = 16;  ///< distinguishable curves: 8 colors, solid and dashed

/// Options of a report.
struct PageOptions {
  std::optional<Goal> goal;    ///< nullopt: choose_goal()
  std::vector<double> prices;  ///< per host and hour: none, one, or one per run
};

/// The page of 1 to kMaxRuns runs, without external resources. Throws Error (input) if no run has
/// the metric of the goal.
std::string report_page(std::span<const RunLog> runs, const PageOptions& options);

/// Curves of the metrics, the samples per second, the learning rate and other values.
std::string curves_section(std::span<const RunLog> runs, const std::optional<Goal>& goal);
/// Breakdown of the time of a step.
std::string breakdown_section(std::span<const RunLog> runs);
/// Replicas, their hosts, and their times.
std::string replicas_section(std::span<const RunLog> runs);
/// Starts, checkpoints, skipped steps, damaged records, ends.
std::string events_section(std::span<const RunLog> runs);
/// Configurations of the trainings, differences first.
std::string settings_section(std::span<const RunLog> runs);

/// A section with its heading; empty if `content` is.
std::string section(std::string_view heading, const std::string& content);
/// The color of run number `run`.
int color_of_run(std::size_t run);
/// A heading with the name and color of a run, if there are several.
std::string run_heading(std::span<const RunLog> runs, std::size_t run);

}  // namespace lockstep::inline v0::apps::report
