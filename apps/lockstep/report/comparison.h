// Comparison of several trainings: the metric, times and costs, and the differences of their
// configurations.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep/report/run_log.h"
#include "lockstep/train/callbacks/monitored_metric.h"

namespace lockstep::inline v0::apps::report {

/// A value of a metric that a training should reach.
struct Goal {
  train::MonitoredMetric metric;
  std::optional<double> value;  ///< nullopt: choose_goal() selects a value that all runs reached

  std::string text() const;  ///< "validation_accuracy of 0.9"
};

/// Parses METRIC[:max|:min][=X], the value of --target. Throws Error (input).
Goal parse_goal(const std::string& text);

/// `requested`, or the first of validation_accuracy, validation_loss, accuracy and loss that all
/// runs have at the end of epochs; its value is by default the best one that every run has reached.
/// nullopt if the runs have no metric in common. Throws Error (input) if no run has the
/// requested metric.
std::optional<Goal> choose_goal(std::span<const RunLog> runs, const std::optional<Goal>& requested);

/// The best value of a metric; the first of equal ones.
std::optional<Point> best_point(const RunLog& run, const train::MonitoredMetric& metric);
/// The first point that is at least as good as the goal.
std::optional<Point> first_reached(const RunLog& run, const Goal& goal);

/// Samples per second: the mean of the epochs, without the first one if there are several, else
/// that of the steps; 0 if the log has neither.
double samples_per_second(const RunLog& run);

/// Cost of `seconds` of the run at `price` per host and hour.
double cost_of(const RunLog& run, double seconds, double price);

/// The configuration of a training: the options of its command line (with "--") and the numbers
/// and texts of the event `start`, without those that are different in every run.
std::map<std::string, std::string> configuration_of(const RunLog& run);

/// A row of the table of configurations.
struct Setting {
  std::string name;
  std::vector<std::string> values;  ///< one per run; "–" if the run lacks it
  bool differs() const;
};
/// Settings sorted by name, those of the command line first.
std::vector<Setting> settings_of(std::span<const RunLog> runs);

}  // namespace lockstep::inline v0::apps::report
