// SIGTERM and SIGINT as a wish to leave, to be read at step boundaries.
#pragma once

#include <csignal>

namespace lockstep::strategy {

/// While it lives, SIGTERM and SIGINT are noted instead of ending the process. A second SIGINT ends it at once, so that
/// a terminal is never held. One at a time in a process.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The last signal noted, SIGTERM or SIGINT; 0 before any.
  int received() const noexcept;

 private:
  struct sigaction previous_terminate_ = {};
  struct sigaction previous_interrupt_ = {};
};

}  // namespace lockstep::strategy
