// SIGTERM, SIGINT and SIGHUP as a request to leave, to be read at step boundaries.
#pragma once

#include <csignal>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::job {

/// While it lives, handlers with SA_ONSTACK have a stack of their own on the thread that made it, unless the thread has
/// one already. A handler that may run while a network is computed needs that: matrix products of oneDNN use the stack
/// pointer for their workspace on the heap, and what the kernel writes below it for a handler would destroy other data.
/// Signals to the process go to the main thread where that does not block them.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;  // empty: the thread has one
};

/// While it lives, chosen signals are noted instead of ending the process; before and after it they do what they did.
/// One at a time in a process.
///
/// A second SIGINT ends the process at once, so that a terminal is never held. A second SIGTERM or SIGHUP does not:
/// schedulers and mpirun both send them to a rank, which then hears one request twice. SIGHUP stays ignored where the
/// process was started so, as by nohup. To be made and destroyed on the main thread.
class SignalWatch {
 public:
  explicit SignalWatch(std::span<const int> signals);  ///< from here on notes `signals`
  /// The same.
  SignalWatch(std::initializer_list<int> signals) : SignalWatch(std::span(signals.begin(), signals.size())) {}
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The last signal noted; 0 before any.
  int received() const noexcept;

 private:
  SignalStack stack_;
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace lockstep::job
