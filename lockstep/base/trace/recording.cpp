#include "lockstep/base/trace/recording.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/atomic_file.h"
#include "lockstep/base/file/input_file.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/trace/partial_trace.h"

namespace lockstep::inline v0::trace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;  // kMaxThreads full rings fit
constexpr std::chrono::seconds kFailureLimit(2);
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;

struct Settings {
  RecordedRank rank = {};
  fs::path directory = {};
  std::vector<std::string> buckets = {};
};

struct SharedSettings {
  std::mutex writing;  // serializes files; held while a disk does not respond
  std::mutex mutex;    // protects `now`
  Settings now;
};

/// Never destroyed: the watchdog may write until the process has ended.
SharedSettings& settings() {
  static auto* const all = new SharedSettings;
  return *all;
}

std::atomic<bool> has_failed{false};

std::int64_t clock_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string quoted(const std::string& text) { return dump_json(Json(text)); }

std::string header(const RecordedRank& rank, const std::vector<std::string>& buckets,
                   std::string_view reason, std::uint64_t lost) {
  const Json line = {{"recorder", kVersion},       {"job", rank.job},
                     {"rank", rank.rank},          {"ranks", rank.ranks},
                     {"host", rank.host},          {"process", ::getpid()},
                     {"reason", reason},           {"time", seconds_since_1970()},
                     {"clock", clock_now()},       {"step", current_step()},
                     {"events_overwritten", lost}, {"buckets", buckets}};
  return dump_json(line) + "\n";
}

struct Line {
  Event event;
  const std::string* thread;  // quoted
};

/// All events, sorted by time.
std::string lines_of(const std::vector<ThreadEvents>& threads) {
  std::vector<std::string> names;
  names.reserve(threads.size());
  std::vector<Line> lines;
  for (const ThreadEvents& thread : threads) {
    names.push_back(quoted(thread.thread));
    for (const Event& event : thread.events) lines.push_back({event, &names.back()});
  }
  std::ranges::stable_sort(lines, {}, [](const Line& line) { return line.event.time; });
  std::map<const char*, std::string> quoted_names;
  std::string text;
  for (const auto& [event, thread] : lines) {
    auto [name, is_new] = quoted_names.try_emplace(event.name);
    if (is_new) name->second = quoted(event.name);
    text += fmt::format(R"({{"t":{},"thread":{},"kind":"{}","name":{},"step":{})", event.time,
                        *thread, to_string(event.kind), name->second, event.step);
    if (event.number >= 0) text += fmt::format(R"(,"number":{})", event.number);
    if (event.sequence > 0) text += fmt::format(R"(,"sequence":{})", event.sequence);
    text += "}\n";
  }
  return text;
}

std::string job_or_process(const RecordedRank& rank) {
  if (!rank.job.empty()) return rank.job;
  return fmt::format("process-{}-{}", ::getpid(), this_process().start);
}

fs::path write_in(const fs::path& directory, const std::string& text, const RecordedRank& rank) {
  AtomicFile file(directory / recording_name(rank.rank), Durability::cached, ErrorCategory::output,
                  Existing::regular_only);
  file.write(text);
  file.commit();
  note_process(rank.job, file.path());
  return file.path();
}

// ---- reading

std::string text_member(const nlohmann::json& line, const char* key) {
  return printable(json_member(line, key, std::string()));
}

void read_header(const nlohmann::json& line, Recording& recording) {
  recording.rank = {.job = text_member(line, "job"),
                    .host = text_member(line, "host"),
                    .rank = json_member(line, "rank", 0),
                    .ranks = json_member(line, "ranks", 1)};
  recording.reason = text_member(line, "reason");
  recording.process = json_member<std::int64_t>(line, "process", 0);
  recording.seconds_since_1970 = json_member(line, "time", 0.0);
  recording.time = json_member<std::int64_t>(line, "clock", 0);
  recording.step = json_member<std::int64_t>(line, "step", 0);
  recording.buckets = json_member(line, "buckets", std::vector<std::string>());
  for (std::string& bucket : recording.buckets) bucket = printable(bucket);
}

EventKind kind_of(const std::string& text) {
  for (const EventKind kind : {EventKind::begin, EventKind::end, EventKind::lap})
    if (to_string(kind) == text) return kind;
  return EventKind::mark;
}

void read_event(const nlohmann::json& line, Recording& recording) {
  const std::string name = text_member(line, "thread");
  auto thread = std::ranges::find(recording.threads, name, &ThreadEvents::thread);
  if (thread == recording.threads.end()) {
    if (recording.threads.size() == kMaxThreads) return;
    thread = recording.threads.insert(thread, ThreadEvents{.thread = name, .events = {}});
  }
  ++thread->recorded;
  thread->events.push_back({.time = json_member<std::int64_t>(line, "t", 0),
                            .name = intern(text_member(line, "name")),
                            .kind = kind_of(text_member(line, "kind")),
                            .number = json_member(line, "number", -1),
                            .step = json_member<std::int64_t>(line, "step", 0),
                            .sequence = json_member<std::uint64_t>(line, "sequence", 0)});
}

}  // namespace

void set_recorded_rank(RecordedRank rank) {
  const std::lock_guard lock(settings().mutex);
  settings().now.rank = std::move(rank);
}

RecordedRank recorded_rank() {
  const std::lock_guard lock(settings().mutex);
  return settings().now.rank;
}

void set_recording_directory(fs::path directory) {
  const std::lock_guard lock(settings().mutex);
  settings().now.directory = std::move(directory);
  has_failed = false;
}

void describe_buckets(std::vector<std::string> contents) {
  const std::lock_guard lock(settings().mutex);
  settings().now.buckets = std::move(contents);
}

std::string recording_name(int rank) { return fmt::format("recorder-{}.jsonl", rank); }

namespace {

/// `writing` is locked.
fs::path write_locked(std::string_view reason) {
  const Settings now = [] {
    const std::lock_guard lock(settings().mutex);
    return settings().now;
  }();
  const std::vector<ThreadEvents> threads = recorded_events();
  std::uint64_t lost = 0;
  for (const ThreadEvents& thread : threads) lost += thread.lost;
  const std::string text = header(now.rank, now.buckets, reason, lost) + lines_of(threads);
  std::error_code ignored;
  if (!now.directory.empty() && fs::is_directory(now.directory, ignored)) {
    try {
      return write_in(now.directory, text, now.rank);
    } catch (const Error&) {
      // The directory may be writable on another host only, or the disk is full.
    }
  }
  const fs::path own = temporary_recordings();
  make_private_directory(own);
  make_private_directory(own / job_or_process(now.rank));
  return write_in(own / job_or_process(now.rank), text, now.rank);
}

}  // namespace

fs::path write_recording(std::string_view reason) {
  const std::lock_guard lock(settings().writing);
  return write_locked(reason);
}

std::future<fs::path> start_recording_of_failure(std::string_view reason) noexcept {
  try {
    if (current_step() == 0 || has_failed.exchange(true)) return {};
    // The thread may outlive its caller, on a disk that does not respond.
    const auto written = std::make_shared<std::promise<fs::path>>();
    std::future<fs::path> recording = written->get_future();
    std::thread([written, text = std::string(reason)] {
      try {
        written->set_value(write_recording(text));
      } catch (const std::exception&) {
        written->set_value({});  // the failure itself is what is reported
      }
    }).detach();
    start_partial_trace();
    return recording;
  } catch (const std::exception&) {
    return {};  // no thread
  }
}

fs::path finish_recording(std::future<fs::path> recording) noexcept {
  try {
    if (!recording.valid()) return {};
    const bool is_written = recording.wait_for(kFailureLimit) == std::future_status::ready;
    finish_partial_trace();
    return is_written ? recording.get() : fs::path();
  } catch (const std::exception&) {
    return {};
  }
}

fs::path write_recording_of_failure(std::string_view reason) noexcept {
  return finish_recording(start_recording_of_failure(reason));
}

void write_recording_of_bystander() noexcept {
  try {
    if (current_step() == 0) return;
    std::thread([] {
      try {
        {
          // A failure of this process has already been recorded, or will replace this recording.
          const std::lock_guard lock(settings().writing);
          if (has_failed) return;
          write_locked(kBystanderReason);
        }
        start_partial_trace();
      } catch (const std::exception&) {
        return;  // as if the process had been killed
      }
    }).detach();
  } catch (const std::exception&) {
    return;  // no thread
  }
}

std::string recording_hint(const fs::path& recording) {
  std::string hint = fmt::format("the last events of the ranks are in {0} (lockstep inspect {0})",
                                 printable(recording.parent_path().native()));
  if (const fs::path trace = finish_partial_trace(); !trace.empty())
    hint += fmt::format("; the incomplete trace is in {}{}", printable(trace.native()),
                        recorded_rank().ranks > 1 ? "; those of other ranks are next to it" : "");
  return hint;
}

Recording read_recording(const fs::path& path) {
  const InputFile file(path);
  const std::int64_t size = file.stamp().size;
  if (size > static_cast<std::int64_t>(kMaxFileBytes))
    throw Error(ErrorCategory::data, path.string(),
                fmt::format("expected a recording of at most {} bytes", kMaxFileBytes),
                fmt::format("got {}", size));
  std::string text(static_cast<std::size_t>(size), '\0');
  text.resize(file.read_at(0, text.data(), text.size()));
  Recording recording;
  const JsonLimits limits{.bytes = kMaxLineBytes, .depth = 4, .values = 100'000};
  std::string_view rest = text;
  for (std::int64_t number = 1; !rest.empty(); ++number) {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos && number > 1) {
      recording.is_cut_off = true;
      break;
    }
    const std::string where = fmt::format("{} line {}", path.string(), number);
    const nlohmann::json line = parse_json(rest.substr(0, end), ErrorCategory::data, where, limits);
    rest.remove_prefix(
        std::min(rest.size(), end == std::string_view::npos ? rest.size() : end + 1));
    if (number == 1 && (!line.is_object() || line.value("recorder", nlohmann::json()) != kVersion))
      throw Error(ErrorCategory::data, where,
                  fmt::format("expected a recording of version {}, {{\"recorder\":{}, …}}",
                              kVersion, kVersion),
                  "got " + describe_json(line));
    if (!line.is_object())
      throw Error(ErrorCategory::data, where, "expected an event", "got " + describe_json(line));
    try {
      if (number == 1)
        read_header(line, recording);
      else
        read_event(line, recording);
    } catch (const std::invalid_argument& reason) {
      throw Error(ErrorCategory::data, where, "expected a line of a recording", reason.what());
    }
  }
  if (recording.rank.job.empty() && recording.time == 0)
    throw Error(ErrorCategory::data, path.string(), "expected a recording", "got an empty file");
  return recording;
}

}  // namespace lockstep::inline v0::trace
