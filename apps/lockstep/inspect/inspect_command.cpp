// `lockstep inspect`: what the flight recorder says about the ranks of a job.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "apps/lockstep/command_line/arguments.h"
#include "apps/lockstep/commands.h"
#include "apps/lockstep/inspect/comparison.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/base/trace/recording.h"

namespace lockstep::inline v0::apps {
namespace {

struct InspectArguments {
  std::string target;
  std::int64_t events = 0;
  bool json = false;
};

}  // namespace
}  // namespace lockstep::inline v0::apps

namespace lockstep::inline v0 {

/// Options of `lockstep inspect`.
template <>
struct Fields<apps::InspectArguments> {
  static constexpr std::tuple list{
      Field{&apps::InspectArguments::events,
            {"events", "", "Also print the last N events of each rank"},
            {.min = 0}}};
};

}  // namespace lockstep::inline v0

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using trace::RecordedProcess;

constexpr std::chrono::seconds kWritingLimit(10);
constexpr std::chrono::milliseconds kPollInterval(20);

fs::path of_process(pid_t process, const char* name) {
  return fs::path("/proc") / std::to_string(process) / name;
}

/// The value of `name` in a file of lines "name: value"; empty if there is none.
std::string status_value(pid_t process, const std::string& name) {
  std::ifstream file(of_process(process, "status"));
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return line.substr(name.size() + 1);
  return {};
}

/// Whether SIGUSR1 does not end it.
bool catches_signal(pid_t process) {
  const std::string mask = status_value(process, "SigCgt");
  return (std::strtoull(mask.c_str(), nullptr, 16) >> (SIGUSR1 - 1) & 1U) != 0;
}

pid_t parent_of(pid_t process) {
  return static_cast<pid_t>(std::strtol(status_value(process, "PPid").c_str(), nullptr, 10));
}

bool descends_from(pid_t process, pid_t ancestor) {
  constexpr int kMaxGenerations = 64;
  for (int i = 0; i < kMaxGenerations && process > 1; ++i, process = parent_of(process))
    if (process == ancestor) return true;
  return false;
}

/// The user of `process`. Throws Error (input) if it does not run.
uid_t owner_of(pid_t process) {
  struct stat owner = {};
  if (::stat(of_process(process, "").c_str(), &owner) != 0)
    throw Error(ErrorCategory::input, fmt::format("process {}", process),
                "expected a running process of a training on this host",
                fmt::format("got {}", std::generic_category().message(errno)));
  return owner.st_uid;
}

/// The directory in which `process`, which may be of another user, notes its recordings.
fs::path recordings_of(pid_t process) {
  std::map<std::string, std::string> values;
  std::ifstream environment(of_process(process, "environ"), std::ios::binary);
  for (std::string variable; std::getline(environment, variable, '\0');)
    if (const std::size_t end = variable.find('='); end != std::string::npos)
      values[variable.substr(0, end)] = variable.substr(end + 1);
  return trace::temporary_recordings(owner_of(process), values["TMPDIR"],
                                     values["XDG_RUNTIME_DIR"]);
}

/// The processes of the jobs of `target`, which is one of them or has started one, such as mpirun.
std::vector<RecordedProcess> find_job(pid_t target, const fs::path& notes) {
  const uid_t owner = owner_of(target);  // who could note processes of others
  const std::string trouble = trace::why_not_private(notes, owner);
  if (!trouble.empty())
    throw Error(ErrorCategory::input, notes.string(),
                fmt::format("expected the directory of the recordings of the user {}, that only "
                            "this user can write; remove it, or set TMPDIR for the training",
                            owner),
                trouble);
  std::vector<RecordedProcess> processes = trace::noted_processes(notes);
  std::erase_if(processes, [&](const RecordedProcess& one) {
    return !catches_signal(one.process) || owner_of(one.process) != owner;
  });
  std::set<std::string> jobs;
  for (const RecordedProcess& one : processes)
    if (descends_from(one.process, target)) jobs.insert(one.job);
  std::erase_if(processes, [&](const RecordedProcess& one) { return !jobs.contains(one.job); });
  if (processes.empty())
    throw Error(ErrorCategory::input, fmt::format("process {}", target),
                "expected a rank of `lockstep train`, or a program that started ranks on this host",
                fmt::format("got a process without a note in {}", notes.string()));
  return processes;
}

/// Changes with each recording of the process.
fs::file_time_type version_of(const fs::path& notes, pid_t process) {
  std::error_code missing;
  return fs::last_write_time(notes / fmt::format("pid-{}", process), missing);
}

/// Makes the ranks of this host write their recordings. Returns the files.
std::vector<fs::path> request_recordings(pid_t target) {
  const fs::path notes = recordings_of(target);
  const std::vector<RecordedProcess> processes = find_job(target, notes);
  std::map<pid_t, fs::file_time_type> before;
  for (const RecordedProcess& one : processes) {
    before[one.process] = version_of(notes, one.process);
    if (::kill(one.process, SIGUSR1) != 0 && errno != ESRCH)
      throw Error(ErrorCategory::input, fmt::format("process {}", one.process),
                  "expected to send it SIGUSR1",
                  fmt::format("got {}", std::generic_category().message(errno)));
  }
  const auto deadline = std::chrono::steady_clock::now() + kWritingLimit;
  const auto are_written = [&] {
    return std::ranges::all_of(
        before, [&](const auto& one) { return version_of(notes, one.first) != one.second; });
  };
  while (!are_written() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kPollInterval);
  std::vector<fs::path> files;
  for (const RecordedProcess& one : trace::noted_processes(notes)) {
    const auto requested = before.find(one.process);
    if (requested == before.end() || one.recording.empty()) continue;
    if (version_of(notes, one.process) != requested->second) files.push_back(one.recording);
  }
  if (files.empty())
    throw Error(ErrorCategory::data, fmt::format("process {}", target),
                fmt::format("expected a recording within {} s",
                            std::chrono::seconds(kWritingLimit).count()),
                "got none; the process may be suspended, or its disk full");
  return files;
}

/// The recordings in a directory.
std::vector<fs::path> recordings_in(const fs::path& directory) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("recorder-") && name.ends_with(".jsonl")) files.push_back(entry->path());
  }
  if (error)
    throw Error(ErrorCategory::data, directory.string(),
                "expected the ID of a process or a directory with recordings",
                fmt::format("got {}", error.message()));
  if (files.empty())
    throw Error(ErrorCategory::data, directory.string(),
                "expected recordings (recorder-RANK.jsonl), which a rank writes when it fails and "
                "on SIGUSR1",
                "got none");
  std::ranges::sort(files);
  return files;
}

/// The last `count` events of all threads, with their times before the recording.
void print_events(const trace::Recording& recording, std::int64_t count, std::ostream& out) {
  out << fmt::format("last events of rank {}\n", recording.rank.rank);
  for (const auto& [event, thread] : last_events(recording, count)) {
    const double milliseconds =
        1e-6 * (static_cast<double>(event->time) - static_cast<double>(recording.time));
    out << fmt::format("{:14.3f} ms  step {}  {}: {} {}{}\n", milliseconds, event->step, *thread,
                       to_string(event->kind), event->name,
                       event->number < 0 ? "" : fmt::format(" {}", event->number));
  }
}

/// Those that can be read, with a warning for each other one; an error if none can.
std::vector<trace::Recording> read_recordings(const std::vector<fs::path>& files) {
  std::vector<trace::Recording> recordings;
  for (const fs::path& file : files) {
    try {
      recordings.push_back(trace::read_recording(file));
    } catch (const Error& error) {
      if (recordings.empty() && &file == &files.back()) throw;
      std::cerr << fmt::format("lockstep: warning: {}\n", error.what());
    }
  }
  return recordings;
}

void inspect(const InspectArguments& arguments, std::ostream& out) {
  const auto process = parse_number<pid_t>(arguments.target);
  const std::vector<trace::Recording> recordings =
      read_recordings(process ? request_recordings(*process) : recordings_in(arguments.target));
  if (arguments.json) {
    out << dump_json(comparison_json(recordings, arguments.events)) << '\n';
    return;
  }
  for (const std::string& line : compare_recordings(recordings)) out << line << '\n';
  if (arguments.events > 0)
    for (const trace::Recording& recording : recordings)
      print_events(recording, arguments.events, out);
}

}  // namespace

void add_inspect_command(CLI::App& program, std::ostream& out) {
  CLI::App* const command = program.add_subcommand(
      "inspect",
      "Show where the ranks of a training are, or were when it failed\n\n"
      "Examples:\n"
      "  lockstep inspect 12345    query a running job without stopping it\n"
      "  lockstep inspect run      read what its ranks wrote to their directory\n");
  const auto arguments = std::make_shared<InspectArguments>();
  command
      ->add_option("PID|DIR", arguments->target,
                   "The process ID of a rank or of the mpirun that started it, or the directory of "
                   "checkpoints (--checkpoint-dir) or recordings (./NAME for a name of digits)")
      ->type_name("")
      ->required();
  add_fields(*command, fields_of(*arguments));
  add_json_option(*command, arguments->json,
                  "Print one JSON object instead of text (same as --log-format json)");
  command->callback([arguments, &out] { inspect(*arguments, out); });
}

}  // namespace lockstep::inline v0::apps
