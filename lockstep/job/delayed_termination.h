// How a program lets its watchdog name a lost rank before a launcher ends the others.
#pragma once

#include <csignal>

#include "lockstep/job/session.h"
#include "lockstep/job/signals.h"

namespace lockstep::job {

/// Launchers such as mpirun send SIGTERM to all other ranks as soon as one is lost, which may be before these have
/// printed who it was. While this object lives, SIGTERM ends the process 0.8 seconds late: the watchdog, which runs on
/// a thread of its own, ends it earlier, with the name of the lost rank, where there is one.
///
/// For programs, in main: it installs a process-wide signal handler, which no other part of the library does on its own
/// account. Does nothing in a job of one rank, nor where SIGTERM is handled or ignored already.
class DelayedTermination {
 public:
  explicit DelayedTermination(const Session& session);  ///< after the session; on the main thread
  ~DelayedTermination();
  DelayedTermination(const DelayedTermination&) = delete;
  DelayedTermination& operator=(const DelayedTermination&) = delete;

 private:
  SignalStack stack_;
  bool is_installed_ = false;
};

}  // namespace lockstep::job
