#include "apps/lockstep/report/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"

namespace lockstep::inline v0::apps::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Maximum length of a line; an event of 10,000 replicas is shorter.
constexpr std::size_t kMaxLine = std::size_t{16} << 20;
constexpr std::size_t kMaxNames = 200;      // maximum number of curves
constexpr std::size_t kMaxReplicas = 4096;  // per event `step`
constexpr double kMaxSeconds = 1e10;        // per training
constexpr double kMaxStep = 9e15;           // exact as a double

/// Members of events that are not curves, or that are drawn elsewhere.
constexpr auto kNotCurves = std::to_array<std::string_view>(
    {"time", "step", "epoch", "samples", "seconds", "skipped_samples", "times_seen", "data_workers",
     "validation_samples", "validation_seconds", "input_wait_seconds", "waiting_seconds",
     "exposed_communication_seconds", "exposed_communication_ms", "waiting_ms"});

std::optional<double> number_in(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string text_in(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool is_true(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() && found->get<bool>();
}

std::string signal_text(const json& end) {
  return fmt::format("stopped by signal {:.0f}", number_in(end, "signal").value_or(0));
}

/// Adds events to a log.
class Reader {
 public:
  explicit Reader(RunLog& log) : log_(log) {}

  /// False if `line` is not an event.
  bool add(std::string_view line) {
    json event;
    try {
      event = parse_json(line, ErrorCategory::data, "event");
    } catch (const Error&) {
      return false;
    }
    if (!event.is_object() || !event.contains("event")) return false;
    const std::string kind = text_in(event, "event");
    const double time = number_in(event, "time").value_or(last_time_);
    if (kind == "start") begin_run(event, time);
    if (!has_base_) base_ = time, has_base_ = true;
    last_time_ = time;
    log_.seconds = std::clamp(time - base_, log_.seconds, kMaxSeconds);
    step_ = static_cast<std::int64_t>(std::clamp(
        number_in(event, kind == "end" ? "steps" : "step").value_or(static_cast<double>(step_)),
        0.0, kMaxStep));
    log_.steps = std::max(log_.steps, step_);
    if (kind == "step")
      add_step(event);
    else if (kind == "epoch" || kind == "validation")
      add_epoch(event);
    else if (kind == "scalar")
      add_curve(log_.step_values, text_in(event, "name"), number_in(event, "value"));
    else if (kind == "checkpoint")
      log_.checkpoints.push_back(point(number_in(event, "seconds").value_or(0)));
    else if (kind == "end")
      add_end(event);
    return true;
  }

  void finish() {
    // A short training has few events `step`, or none.
    if (points_of(log_.breakdown) < points_of(epoch_breakdown_))
      log_.breakdown = std::move(epoch_breakdown_);
    for (ReplicaTimes& times : log_.replicas) {
      times.input /= intervals_;
      times.compute /= intervals_;
      times.waiting /= intervals_;
    }
  }

 private:
  Point point(double value) const { return {step_, log_.seconds, value}; }

  void note(std::string text) {
    if (log_.occurrences.size() < RunLog::kMaxOccurrences)
      log_.occurrences.push_back({step_, log_.seconds, std::move(text)});
    else
      ++log_.occurrences_left_out;
  }

  /// Limits the changes to list, because the verdict changes often if two parts of a step are about
  /// equally long.
  void note_bound(const std::string& bound) {
    constexpr std::int64_t kMaxChanges = 100;
    if (++bound_changes_ <= kMaxChanges)
      note("bound by " + bound);
    else
      ++log_.occurrences_left_out;
  }

  void begin_run(const json& event, double time) {
    const double started =
        std::clamp(number_in(event, "start_seconds").value_or(0), 0.0, kMaxSeconds);
    log_.hosts.push_back(
        {step_, log_.seconds, std::max(1.0, number_in(event, "nodes").value_or(1))});
    log_.seconds = std::min(log_.seconds + started, kMaxSeconds);
    base_ = time - log_.seconds;
    has_base_ = true;
    const auto first = std::clamp(number_in(event, "first_step").value_or(0), 0.0, kMaxStep);
    step_ = static_cast<std::int64_t>(first);
    if (log_.runs++ == 0) log_.start = event;
    log_.last_start = event;
    if (log_.runs > 1) repeat_from(step_);
    log_.end = nullptr;
    const std::string restored = text_in(event, "restored_from");
    note(restored.empty() ? "started" : "resumed from " + restored);
    if (const std::string initial = text_in(event, "initialized_from"); !initial.empty())
      note("initialized from " + initial);
    for (const json& file : array_in(event, "damaged_files"))
      if (file.is_string()) note(file.get<std::string>());
  }

  /// The steps after `step` are repeated.
  void repeat_from(std::int64_t step) {
    const auto is_later = [step](const Point& point) { return point.step > step; };
    for (auto* curves : {&log_.step_values, &log_.breakdown, &epoch_breakdown_})
      for (auto& [name, series] : *curves) series.drop_after(step);
    for (Series& series : log_.replica_busy) series.drop_after(step);
    for (auto& [name, points] : log_.epoch_values) std::erase_if(points, is_later);
    std::erase_if(log_.checkpoints, is_later);
    log_.steps = step;
  }

  static const json& array_in(const json& event, const char* key) {
    static const json none = json::array();
    const auto found = event.find(key);
    return found != event.end() && found->is_array() ? *found : none;
  }

  template <typename Curves>
  void add_curve(Curves& curves, const std::string& name, std::optional<double> value) {
    if (!value || name.empty()) return;
    auto found = curves.find(name);
    if (found == curves.end()) {
      if (curves.size() >= kMaxNames) return;
      found = curves.try_emplace(name).first;
    }
    if constexpr (std::is_same_v<Curves, std::map<std::string, Series>>)
      found->second.add(point(*value));
    else
      found->second.push_back(point(*value));
  }

  static bool is_curve(const std::string& name, const json& value) {
    return value.is_number() && std::ranges::find(kNotCurves, name) == kNotCurves.end();
  }

  void add_step(const json& event) {
    for (const auto& [name, value] : event.items())
      if (is_curve(name, value)) add_curve(log_.step_values, name, number_in(event, name.c_str()));
    if (is_true(event, "skipped"))
      note(is_true(event, "overflow") ? "step skipped: the loss scale was too large"
                                      : "step skipped: loss or gradient not finite");
    add_verdict(event);
    add_breakdown(event, log_.breakdown);
    add_replicas(event);
  }

  static std::int64_t points_of(const std::map<std::string, Series>& parts) {
    return parts.empty() ? 0 : parts.begin()->second.points();
  }

  void add_verdict(const json& event) {
    if (const std::string bound = text_in(event, "bound_by"); !bound.empty()) {
      if (log_.bound_by.size() < kMaxNames || log_.bound_by.contains(bound)) ++log_.bound_by[bound];
      if (bound != last_bound_) note_bound(bound);
      last_bound_ = bound;
    }
    if (std::string verdict = text_in(event, "verdict"); !verdict.empty())
      log_.verdict = std::move(verdict);
  }

  void add_breakdown(const json& event, std::map<std::string, Series>& parts) {
    const auto breakdown = event.find("breakdown");
    if (breakdown == event.end() || !breakdown->is_object()) return;
    for (const auto& [name, value] : breakdown->items())
      add_curve(parts, name, number_in(*breakdown, name.c_str()));
  }

  void add_replicas(const json& event) {
    const json& compute = array_in(event, "replica_compute_ms");
    const json& input = array_in(event, "replica_input_ms");
    const json& waiting = array_in(event, "replica_waiting_ms");
    const std::size_t count = compute.size();
    const auto are_numbers = [count](const json& values) {
      return values.size() == count &&
             std::ranges::all_of(values, [](const json& value) { return value.is_number(); });
    };
    if (count == 0 || count > kMaxReplicas) return;
    if (!are_numbers(compute) || !are_numbers(input) || !are_numbers(waiting)) return;
    if (log_.replicas.size() != count) {  // e.g. resumed with another number
      log_.replicas.assign(count, {});
      log_.replica_busy.assign(std::min(count, RunLog::kMaxCurves), {});
      intervals_ = 0;
    }
    ++intervals_;
    for (std::size_t i = 0; i < count; ++i) {
      log_.replicas[i].input += input[i].get<double>();
      log_.replicas[i].compute += compute[i].get<double>();
      log_.replicas[i].waiting += waiting[i].get<double>();
      if (i < log_.replica_busy.size())
        log_.replica_busy[i].add(point(input[i].get<double>() + compute[i].get<double>()));
    }
  }

  void add_epoch(const json& event) {
    // The training metrics of an incomplete epoch cover fewer samples.
    const auto complete = event.find("complete");
    const bool is_partial = complete != event.end() && *complete == false;
    for (const auto& [name, value] : event.items())
      if (is_curve(name, value) && (!is_partial || name.starts_with("validation_")))
        add_curve(log_.epoch_values, name, number_in(event, name.c_str()));
    if (log_.breakdown.empty()) add_verdict(event);  // else those of its steps are known
    add_breakdown(event, epoch_breakdown_);
    if (const double skipped = number_in(event, "skipped_samples").value_or(0); skipped > 0)
      note(fmt::format("{:.0f} samples in skipped steps", skipped));
    for (const json& bad : array_in(event, "bad_records"))
      if (bad.is_object())
        note(fmt::format("{:.0f} bad records {}{}", number_in(bad, "records").value_or(0),
                         text_in(bad, "file").empty() ? "" : "in " + text_in(bad, "file") + ": ",
                         text_in(bad, "first")));
  }

  void add_end(const json& event) {
    log_.end = event;
    note(log_.status() +
         (text_in(event, "stop_reason").empty() ? "" : ": " + text_in(event, "stop_reason")));
  }

  RunLog& log_;
  std::map<std::string, Series> epoch_breakdown_;
  std::string last_bound_;
  std::int64_t bound_changes_ = 0;
  std::int64_t step_ = 0;
  double base_ = 0;  // time at 0 seconds
  bool has_base_ = false;
  double last_time_ = 0;
  double intervals_ = 0;  // number of events with replica times
};

/// Calls `process(line, is_whole)` with each line of the file. Lines above kMaxLine are empty.
template <typename Process>
void for_each_line(const InputFile& file, Process process) {
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  std::string chunk(kChunk, '\0');
  std::string open;
  bool is_too_long = false;
  std::uint64_t offset = 0;
  while (const std::size_t count = file.read_at(offset, chunk.data(), kChunk)) {
    offset += count;
    std::string_view rest(chunk.data(), count);
    for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end + 1);
      if (open.empty() && !is_too_long) {
        process(line, true);
        continue;
      }
      open += line;
      process(is_too_long ? std::string_view("?") : std::string_view(open), true);
      open.clear();
      is_too_long = false;
    }
    if (open.size() + rest.size() > kMaxLine) {
      is_too_long = true;
      open.clear();
    }
    if (!is_too_long) open += rest;
  }
  if (!open.empty() || is_too_long) process(open, false);
}

constexpr const char* kExpected =
    "expected the events of a training (lockstep train --events run.jsonl)";

/// Whether the file begins with an event `start`.
bool begins_a_run(const fs::path& path) {
  const InputFile file(path, ErrorCategory::data);
  std::string first(std::size_t{4096}, '\0');
  first.resize(file.read_at(0, first.data(), first.size()));
  return first.starts_with("{\"event\":\"start\"");
}

/// The logs of trainings in a directory, sorted; in those of its subdirectories if `levels` is 1.
std::vector<fs::path> logs_in(const fs::path& directory, int levels) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    const std::string extension = path.extension().string();
    const bool has_name = extension == ".jsonl" || extension == ".json" || extension == ".log";
    std::error_code unknown;
    if (levels > 0 && entry->is_directory(unknown))
      std::ranges::copy(logs_in(path, levels - 1), std::back_inserter(found));
    else if (levels == 0 && has_name && entry->is_regular_file(unknown) && begins_a_run(path))
      found.push_back(path);
  }
  if (error)
    throw Error(ErrorCategory::data, directory.string(), "expected a directory that can be read",
                error.message());
  std::ranges::sort(found);
  return found;
}

RunLog read_log(const fs::path& path, const std::string& name) {
  RunLog log;
  log.path = path;
  log.name = encode_bytes(name);
  const InputFile file(log.path, ErrorCategory::data);
  Reader reader(log);
  std::int64_t number = 0;
  std::int64_t events = 0;
  for_each_line(file, [&](std::string_view line, bool is_whole) {
    ++number;
    if (line.empty() && is_whole) return;
    if (reader.add(line)) {
      ++events;
    } else if (!is_whole) {
      log.is_cut_off = true;
    } else if (log.damaged_lines++ == 0) {
      log.first_damaged = number;
    }
  });
  if (events == 0)
    throw Error(ErrorCategory::data, log.path.string(), kExpected,
                number == 0 ? "the file is empty" : "none of its lines is an event");
  reader.finish();
  return log;
}

/// The last name of `directory`, also of "." and of "runs/".
std::string name_of(const fs::path& directory) {
  std::error_code unknown;
  const fs::path whole = fs::absolute(directory, unknown).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace

std::string RunLog::text(const char* key) const {
  const auto found = start.find(key);
  if (!start.is_object() || found == start.end()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->is_number() ? dump_json(*found) : std::string();
}

double RunLog::number(const char* key) const {
  return start.is_object() ? number_in(start, key).value_or(0) : 0;
}

double RunLog::last_number(const char* key) const {
  return last_start.is_object() ? number_in(last_start, key).value_or(0) : 0;
}

bool RunLog::is_finished() const {
  return end.is_object() && number_in(end, "signal").value_or(0) == 0;
}

std::string RunLog::status() const {
  if (!end.is_object()) return "still running, or killed";
  if (number_in(end, "signal").value_or(0) > 0) return signal_text(end);
  if (const auto healthy = end.find("healthy"); healthy != end.end() && *healthy == false)
    return "diverged";
  if (end.contains("nothing_trained") && epoch_values.empty() && step_values.empty())
    return "nothing trained: it had ended";
  return is_true(end, "stopped") ? "stopped early" : "finished";
}

std::vector<RunLog> read_runs(const fs::path& path) {
  std::error_code unknown;
  std::vector<RunLog> runs;
  if (!fs::is_directory(path, unknown)) {
    runs.push_back(read_log(path, path.stem().string()));
    return runs;
  }
  const std::vector<fs::path> own = logs_in(path, 0);
  const std::vector<fs::path> logs = own.empty() ? logs_in(path, 1) : own;
  if (logs.empty())
    throw Error(ErrorCategory::data, path.string(), std::string(kExpected) + " in the directory",
                "there is none");
  for (const fs::path& log : logs) {
    // A single log has the name of its directory.
    const auto is_beside = [&](const fs::path& other) {
      return other.parent_path() == log.parent_path();
    };
    const bool is_single = std::ranges::count_if(logs, is_beside) == 1;
    runs.push_back(read_log(log, is_single ? name_of(log.parent_path()) : log.stem().string()));
  }
  return runs;
}

}  // namespace lockstep::inline v0::apps::report
