// A rank, or ssh to another host, as a child process; and the signals that this process receives
// while they run.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::apps::launch {

/// Exit status after a signal: this plus the signal's number.
inline constexpr int kSignalStatus = 128;

struct ChildOptions {
  /// "NAME=value"; replaces this process's environment.
  std::vector<std::string> environment = {};
  enum class Input { none, own, pipe } input = Input::none;  ///< its standard input
};

/// A child process in its own process group, with this process's output. It receives SIGTERM if
/// this process is killed.
class Child {
 public:
  /// Throws Error: (input) if there is no such program, (communication) if the system cannot start
  /// a process.
  Child(const std::vector<std::string>& command, const ChildOptions& options);
  /// Kills it if it is still running.
  ~Child();
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;

  pid_t id() const { return id_; }
  /// Exit status, or 128 + the signal that ended it; nullopt while it runs.
  std::optional<int> status();
  /// Whether a signal had stopped it when status() was called last.
  bool is_stopped() const { return is_stopped_; }
  void signal_group(int signal) const;
  /// Writes to its standard input, for ChildOptions::Input::pipe. Does nothing if it does not read.
  void write(const std::string& text) const;

 private:
  pid_t id_ = -1;
  std::optional<int> status_;
  bool is_stopped_ = false;
  FileDescriptor input_;
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

}  // namespace lockstep::inline v0::apps::launch
