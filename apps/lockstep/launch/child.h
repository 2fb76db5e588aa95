// A child process of a task, and the signals that the task receives while it runs.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::apps::launch {

struct ChildOptions {
  /// Affinity; the default, also if the system refuses it, is that of this process.
  std::vector<int> processors = {};
  bool captured = false;  ///< this process reads its output; its input is empty
};

/// Ends mpirun and its daemons. They ignore SIGTERM: schedulers send it to all processes of a job,
/// and mpirun would then leave its ranks no time to save a checkpoint.
inline constexpr int kEndSignal = SIGINT;

/// Exit status after a signal: this plus the signal's number.
inline constexpr int kSignalStatus = 128;

/// Whether the signal requests the end of the job.
inline bool is_stop_signal(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

/// A child process in its own process group, with SIGTERM blocked, and without the environment
/// variables that identify a task of a job. It receives kEndSignal if this process is killed.
class Child {
 public:
  /// Throws Error: (input) if there is no such program, (communication) if the system cannot start
  /// a process.
  Child(const std::vector<std::string>& command, const ChildOptions& options);
  /// Kills it if it is still running.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t id() const { return id_; }
  /// Exit status, or 128 + the signal that ended it; nullopt while it runs.
  std::optional<int> status();
  /// Whether a signal such as SIGSTOP has stopped it; false while a debugger has.
  bool is_stopped() const;
  void signal(int signal) const;
  void signal_group(int signal) const;
  /// Kills its process group and its ranks, which have their own process groups.
  void end_by_force() const;
  /// The MPI ranks among its descendants.
  std::vector<pid_t> ranks() const;

  /// Its standard output and standard error if they are captured; closed at end of file.
  FileDescriptor& output() { return output_; }
  FileDescriptor& errors() { return errors_; }

 private:
  pid_t id_ = -1;
  std::optional<int> status_;
  FileDescriptor output_;
  FileDescriptor errors_;
};

/// While an object exists, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD are blocked and
/// read from a descriptor. There may be only one object at a time.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable when a signal is pending.
  int descriptor() const { return descriptor_.get(); }
  /// The pending signals, without SIGCHLD.
  std::vector<int> drain() const;

 private:
  FileDescriptor descriptor_;
};

/// Whether the environment variable identifies a task of a job, would make mpirun run as part of
/// one, or is the secret of the tasks.
bool identifies_task(const std::string& name);

}  // namespace lockstep::inline v0::apps::launch
