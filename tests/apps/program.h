// The program as a separate process: its output and exit status.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::inline v0::apps {

/// Exit status and output of a process.
struct Result {
  int status = 0;      ///< exit status, or 128 + the signal that ended it
  std::string output;  ///< standard output
  std::string errors;  ///< standard error

  /// The lines of the output as JSON. Fails the test if one is not.
  std::vector<nlohmann::json> events() const;
  /// The last event of this kind. Fails the test if there is none.
  nlohmann::json event(const std::string& kind) const;
  /// The losses of all step events.
  std::vector<double> losses() const;
};

/// A running process. Its destructor ends it.
class Process {
 public:
  explicit Process(const std::vector<std::string>& command);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t id() const { return id_; }
  /// Child processes.
  std::vector<pid_t> children() const;
  /// Child processes and their descendants.
  std::vector<pid_t> descendants() const;
  /// Reads standard output until a line contains `text`. Returns false if it ends before.
  bool wait_for(const std::string& text);
  void kill(int signal) const;
  /// Waits for its end.
  Result finish();

 private:
  pid_t id_ = -1;
  int output_ = -1;
  std::string read_;
  std::filesystem::path errors_;
};

/// Watches for the end of a process that need not be a child of this one.
class Watched {
 public:
  explicit Watched(pid_t id);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

  /// Whether it ends within `seconds`.
  bool ends_within(int seconds) const;

 private:
  int descriptor_;
};

/// The numbers of a CSV table by line, without its header.
std::vector<std::vector<double>> numbers_of(const std::string& table);

/// `lockstep ARGUMENTS…`, the arguments separated by spaces. For trainings, --checkpoint-dir
/// defaults to `none`, so that nothing is saved in the working directory of the tests.
std::vector<std::string> lockstep(const std::string& arguments);
/// Runs lockstep() on `ranks` ranks.
std::vector<std::string> mpirun(int ranks, const std::string& arguments);
/// Any command on `ranks` ranks.
std::vector<std::string> mpirun(int ranks, const std::vector<std::string>& command);

Result run(const std::vector<std::string>& command);
inline Result run_lockstep(const std::string& arguments) { return run(lockstep(arguments)); }

}  // namespace lockstep::inline v0::apps
