// A process that a task starts, and the signals that it is told of meanwhile.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::apps::launch {

struct ChildOptions {
  std::vector<int> processors = {};  ///< that it may run on; empty, or where the system refuses: those of this process
  bool captured = false;             ///< its output is read here, and its input is empty
};

/// What tells mpirun and its daemons to end. SIGTERM does not: schedulers send it to all processes of a job, and mpirun
/// would then give its ranks no time to save what they have.
inline constexpr int kEndSignal = SIGINT;

/// Of a process that a signal ended: this and the signal.
inline constexpr int kSignalStatus = 128;

/// Whether a signal is the wish that a job ends.
inline bool asks_to_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

/// Runs in a process group of its own, with SIGTERM blocked, and without the variables that tell which of the tasks of
/// a job a process is. Where this process is killed it is told to end.
class Child {
 public:
  /// Throws Error: (input) where there is no such program, (communication) where the system has no process to give.
  Child(const std::vector<std::string>& command, const ChildOptions& options);
  /// Ends it by force.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t id() const { return id_; }
  /// Exit status, or 128 + the signal that ended it, once it has ended.
  std::optional<int> status();
  void signal(int signal) const;
  void signal_group(int signal) const;
  /// With its group, and with its ranks, which have groups of their own and would stay.
  void end_by_force() const;
  /// The ranks of MPI that it, or a process that it started, has started.
  std::vector<pid_t> ranks() const;

  /// What it prints, where it is captured; closed at its end.
  net::FileDescriptor& output() { return output_; }
  net::FileDescriptor& errors() { return errors_; }

 private:
  pid_t id_ = -1;
  std::optional<int> status_;
  net::FileDescriptor output_;
  net::FileDescriptor errors_;
};

/// While it lives, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD are read from a descriptor instead of ending
/// the process. One at a time.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  /// Readable when a signal has come.
  int descriptor() const { return descriptor_.get(); }
  /// The signals that have come since, without SIGCHLD.
  std::vector<int> take() const;

 private:
  net::FileDescriptor descriptor_;
};

/// Whether the variable says which of the tasks of a job a process is, or makes mpirun take itself for one, or is the
/// secret of the tasks.
bool is_of_a_task(const std::string& name);

}  // namespace lockstep::apps::launch
