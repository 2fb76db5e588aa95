// A job of ranks as a user starts it, and its leftovers.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::inline v0::faults {

/// How a job ended.
struct Outcome {
  int status = -1;  ///< exit status of what was started, or 128 + the signal that ended it; -1: it
                    ///< did not end
  double seconds = 0;  ///< from the start of the job, or since `Job::restart_clock`, to the end of
                       ///< its last process
  std::string output;  ///< standard output and standard error of all ranks
  /// Remaining processes, shared memory and directories; empty if none.
  std::string left_behind;

  /// Lines of the output that contain `text`.
  std::vector<std::string> lines_with(const std::string& text) const;
};

/// mpirun with the program faulty_training. A name in their command lines identifies its processes.
/// The destructor ends them.
class Job {
 public:
  /// `arguments`: arguments of the program. `launcher`: replaces mpirun and its options.
  Job(int ranks, const std::string& arguments);
  Job(std::vector<std::string> launcher, const std::string& arguments);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  pid_t launcher() const { return launcher_; }
  std::string output() const;
  /// Waits for a line that contains `text`. False if the job ends first, or after a timeout.
  bool wait_for(const std::string& text);
  /// The process of rank `rank`, from its output; waits for that. Throws if it is not printed.
  pid_t rank(int rank);
  void restart_clock() { start_ = Clock::now(); }
  /// Waits up to `seconds` for the end of all processes, then kills the remaining ones.
  Outcome finish(double seconds);

 private:
  using Clock = std::chrono::steady_clock;

  void start(std::vector<std::string> command, const std::string& arguments);
  bool has_ended();
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  std::vector<pid_t> processes() const;
  void end_all() const;
  std::string left_behind() const;

  std::string name_;
  std::filesystem::path log_;
  Clock::time_point start_ = Clock::now();
  std::filesystem::file_time_type begin_ = std::filesystem::file_time_type::clock::now();
  pid_t launcher_ = 0;
  int status_ = -1;
};

}  // namespace lockstep::inline v0::faults
