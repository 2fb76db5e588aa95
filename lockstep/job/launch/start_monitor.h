// Ends a process whose start does not return, such as an MPI_Init that waits for a stopped rank.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/allreduce/watchdog/progress.h"

namespace lockstep::inline v0::job {

/// Counts the seconds in which a process ran: not those in which it was stopped, which show as a
/// long pause between two readings, nor those under a debugger. Has no clock of its own.
class RunningTime {
 public:
  /// `now`: seconds of a monotonic clock. `longest_pause`: longer pauses between readings count as
  /// this.
  RunningTime(double now, double longest_pause) : clock_(now, longest_pause) {}

  /// Returns the seconds so far. `counts`: whether the time since the last reading counts.
  double advance(double now, bool counts) {
    const double awake = clock_.advance(now);
    if (counts) running_ += awake - last_;
    last_ = awake;
    return running_;
  }

 private:
  allreduce::AwakeClock clock_;
  double last_ = 0;
  double running_ = 0;
};

/// A call of the start that may wait for other ranks.
struct StartCall {
  const char* name = "";    ///< "MPI_Init_thread"
  const char* advice = "";  ///< what to do if it does not return
};

/// A thread that ends this process with the exit status of a communication error if its start, up
/// to the end of the constructor of Session, takes too long:
///
///     lockstep: error: [start] expected MPI_Init_thread to return within 60 s; rank 1, host H, is
///     waiting: ADVICE
///
/// MPI has no time limit, and the watchdog needs MPI to start. One rank of each host prints the
/// line. Time counts as in RunningTime.
///
/// To cover the time before its Session, a program creates a monitor first in main and sets it in
/// SessionOptions; otherwise the Session creates one.
class StartMonitor {
 public:
  StartMonitor();
  ~StartMonitor();
  StartMonitor(const StartMonitor&) = delete;
  StartMonitor& operator=(const StartMonitor&) = delete;

  /// Limits the start to `seconds` from now on; 0: no limit. Starts the thread; if that fails,
  /// nothing is watched.
  void watch(double seconds);
  /// From now on the process is in `call`, which must live as long as this object.
  void enter(const StartCall& call);
  /// From now on the process waits for no other rank.
  void leave();

 private:
  void run();
  [[noreturn]] void end(const StartCall& call, double limit) const;

  const int rank_;
  const std::string host_;
  const std::string job_;
  std::mutex lock_;
  std::condition_variable changed_;
  double limit_ = 0;
  const StartCall* call_ = nullptr;
  std::optional<RunningTime> time_;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::inline v0::job
