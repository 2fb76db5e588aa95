// Writes the flight recorder's events on SIGUSR1 without stopping the program.
#pragma once

#include <memory>

#include "lockstep/job/session.h"
#include "lockstep/job/signal/signals.h"

namespace lockstep::inline v0::job {

/// From now on SIGUSR1 does not end this process; a SignalRecording that is created later serves
/// the request. Call it at the beginning of main. Does nothing if SIGUSR1 is already handled or
/// ignored.
void hold_recording_requests();

/// During the lifetime of this object, SIGUSR1 writes the last events of all threads of this
/// process to recorder-RANK.jsonl (lockstep/base/trace/recording.h), which `lockstep inspect` reads
/// and, with a process ID, requests.
///
/// For use in main: it installs a process-wide signal handler, which no other part of the library
/// does implicitly, and starts a thread that writes. Does nothing if SIGUSR1 is already handled by
/// other code or ignored, or if no thread can be started. At most one per process.
class SignalRecording {
 public:
  /// Construct after the session, on the main thread. Logs with the session's logger.
  explicit SignalRecording(const Session& session);
  ~SignalRecording();
  SignalRecording(const SignalRecording&) = delete;
  SignalRecording& operator=(const SignalRecording&) = delete;

 private:
  class Writer;

  SignalStack stack_;
  std::unique_ptr<Writer> writer_;  // null if SIGUSR1 is not this object's
};

}  // namespace lockstep::inline v0::job
