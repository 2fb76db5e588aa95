// SIGTERM, SIGINT and SIGHUP as a request to stop, checked at step boundaries.
#pragma once

#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::inline v0::job {

/// During its lifetime, handlers with SA_ONSTACK run on an alternate stack on the thread that
/// created it, unless the thread already has one. Handlers that may run during computation need
/// this: matrix products of oneDNN point the stack pointer to a workspace on the heap, and the
/// signal frame that the kernel writes below it would corrupt other data. Signals to the process
/// are delivered to the main thread unless it blocks them.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;  // null: the thread has its own
};

/// During its lifetime, the given signals are recorded instead of ending the process; the
/// destructor restores the previous handlers. At most one per process.
///
/// A second SIGINT ends the process immediately, so that a terminal is never blocked; the notice
/// can say so. A second SIGTERM or SIGHUP does not: schedulers and mpirun both send them to a rank,
/// which then receives one request twice. SIGHUP stays ignored if the process was started that way,
/// as by nohup. Create and destroy it on the main thread.
class SignalWatch {
 public:
  /// Starts recording `signals`. At the first SIGINT, the handler writes `interrupt_notice` as a
  /// line to standard error; empty: nothing.
  explicit SignalWatch(std::span<const int> signals, const std::string& interrupt_notice = {});
  /// Same, for a list.
  SignalWatch(std::initializer_list<int> signals)
      : SignalWatch(std::span(signals.begin(), signals.size())) {}
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The last signal received; 0 if none.
  int received() const noexcept;

 private:
  SignalStack stack_;
  std::string notice_;
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace lockstep::inline v0::job
