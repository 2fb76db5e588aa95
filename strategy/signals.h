// SIGTERM, SIGINT and SIGHUP as a request to leave, to be read at step boundaries.
#pragma once

#include <csignal>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::strategy {

/// While it lives, chosen signals are noted instead of ending the process; before and after it they do what they did.
/// One at a time in a process.
///
/// A second SIGINT ends the process at once, so that a terminal is never held. A second SIGTERM or SIGHUP does not:
/// schedulers and mpirun both send them to a rank, which then hears one request twice. SIGHUP stays ignored where the
/// process was started so, as by nohup.
class SignalWatch {
 public:
  explicit SignalWatch(std::span<const int> signals);
  SignalWatch(std::initializer_list<int> signals) : SignalWatch(std::span(signals.begin(), signals.size())) {}
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The last signal noted; 0 before any.
  int received() const noexcept;

 private:
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace lockstep::strategy
