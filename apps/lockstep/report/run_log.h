// The JSON events of a training, read from a file.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/lockstep/report/series.h"

namespace lockstep::inline v0::apps::report {

/// The parts of a step that its time is divided into, in the order in which they are drawn. Other
/// names follow them.
inline constexpr std::array kBreakdownParts = {"input",  "compute",    "communication", "waiting",
                                               "update", "checkpoint", "other"};

/// A remarkable event of a training.
struct Occurrence {
  std::int64_t step = 0;
  double seconds = 0;  ///< since the start of the training
  std::string text;
};

/// Mean times of one replica, in milliseconds per step.
struct ReplicaTimes {
  double input = 0;
  double compute = 0;
  double waiting = 0;  ///< waiting for the slowest replica
};

/// A training according to its events. A log to which several runs have appended is one training:
/// repeated steps of a resumed run replace the earlier ones.
struct RunLog {
  std::string name;            ///< name of the file or directory
  std::filesystem::path path;  ///< path of the file
  nlohmann::json start;        ///< the first event `start`; null if it is missing
  nlohmann::json last_start;   ///< the last event `start`; its replicas may differ
  std::vector<Point> hosts;    ///< `value`: number of hosts, from the beginning of each run
  nlohmann::json end;      ///< the last event `end`; null if the training still runs or was killed
  std::int64_t runs = 0;   ///< number of events `start`
  std::int64_t steps = 0;  ///< completed steps
  /// Time from the start of the program to the last event, summed over the runs.
  double seconds = 0;

  std::map<std::string, Series> step_values;  ///< numbers of the events `step` and `scalar`
  /// Numbers of the events `epoch` and `validation`.
  std::map<std::string, std::vector<Point>> epoch_values;
  /// Seconds per step, by part.
  std::map<std::string, Series> breakdown;
  std::map<std::string, std::int64_t> bound_by;  ///< number of intervals with each verdict
  std::string verdict;                           ///< the last one; empty if there is none

  std::vector<ReplicaTimes> replicas;  ///< empty if the log does not have them
  std::vector<Series> replica_busy;    ///< milliseconds per step, for the first kMaxCurves replicas
  static constexpr std::size_t kMaxCurves = 64;

  std::vector<Occurrence> occurrences;  ///< in order; at most kMaxOccurrences
  std::int64_t occurrences_left_out = 0;
  static constexpr std::size_t kMaxOccurrences = 500;
  std::vector<Point> checkpoints;  ///< `value`: seconds of the pause of the training

  bool is_cut_off = false;         ///< the last line is incomplete
  std::int64_t damaged_lines = 0;  ///< other lines that are not events
  std::int64_t first_damaged = 0;  ///< line number of the first one, from 1

  /// The member of `start` as a string or number; empty or 0 otherwise.
  std::string text(const char* key) const;
  double number(const char* key) const;
  double last_number(const char* key) const;  ///< a member of `last_start`
  /// "finished", "stopped by signal 15", "still running, or killed", ….
  std::string status() const;
  bool is_finished() const;  ///< whether it reached its last step or was stopped by a callback
};

/// Reads the events of trainings, also of running ones. `path`: a file, or a directory with such
/// files (*.jsonl, *.json or *.log), or with directories that have them; all are read. At least
/// one. Throws Error (data) unless there are readable files with events.
std::vector<RunLog> read_runs(const std::filesystem::path& path);

}  // namespace lockstep::inline v0::apps::report
