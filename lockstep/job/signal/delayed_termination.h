// Delays SIGTERM so that the watchdog can report a lost rank before the launcher ends the others.
#pragma once

#include "lockstep/job/session.h"
#include "lockstep/job/signal/signals.h"

namespace lockstep::inline v0::job {

/// Launchers such as mpirun send SIGTERM to all other ranks as soon as one is lost, possibly before
/// these have reported the lost rank. During the lifetime of this object, SIGTERM ends the process
/// after a delay of 0.8 seconds. If a rank was lost, the watchdog, which runs on its own thread,
/// reports it and ends the process earlier.
///
/// For use in main: it installs a process-wide signal handler, which no other part of the library
/// does implicitly. Does nothing in a job of one rank, or if SIGTERM is already handled or ignored.
class DelayedTermination {
 public:
  /// Construct after the session, on the main thread.
  explicit DelayedTermination(const Session& session);
  ~DelayedTermination();
  DelayedTermination(const DelayedTermination&) = delete;
  DelayedTermination& operator=(const DelayedTermination&) = delete;

 private:
  SignalStack stack_;
  bool is_installed_ = false;
};

}  // namespace lockstep::inline v0::job
