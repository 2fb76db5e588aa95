// Ends a job that cannot continue and reports the cause. Independent of MPI and NCCL, on a separate
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/communicator.h"

namespace lockstep::inline v0::allreduce {

class Agent;

/// The finding of the watchdog.
struct WatchdogReport {
  std::string text;     ///< "[watchdog] expected …; rank 2, host H, …; ADVICE"
  bool prints = false;  ///< whether this rank prints the report
};

/// Options of the watchdog.
struct WatchdogOptions {
  double stall_timeout = 120;  ///< seconds; 0: no watchdog. Rank 0's value is used by all ranks
  double heartbeat = 0;        ///< seconds between reports; 0: a fifth of the timeout, at most 1
  std::string advice{};        ///< end of the message: what to do
  std::string host{};          ///< host of this rank in messages; empty: the system's host name
  /// Called at every heartbeat on the watchdog's thread: whether this process has made progress
  /// without calls on an Activity. Applies to replicas outside of a training (is_outside_training)
  /// in a process none of whose replicas is in a collective. Empty: only those calls count.
  std::function<bool()> made_progress{};
  /// Called once on the watchdog's thread instead of the message and the exit. For tests.
  std::function<void(const WatchdogReport&)> on_failure{};
};

/// While it exists, every rank reports the state of its replicas to rank 0 over TCP. If the job
/// cannot continue,
///
///     lockstep: error: [watchdog] expected progress within 120 s; rank 2, host H, step 100,
///     waiting before bucket 3 (layers conv4 .. fc1) for 121 s in compute; ranks 0,1,3 are in it;
///     ADVICE
///
/// is written to standard error (one line, by rank 0; by one rank per host if rank 0 is lost).
/// Every rank then exits within seconds with the exit status of a communication error, without
/// destructors, even if its other threads hang. This happens when
///   - a rank's process ends without a goodbye: immediately;
///   - a rank sends no heartbeat for stall_timeout: it was stopped, or its host is unreachable;
///   - a replica has been in a collective for stall_timeout, and those that have not entered it
///     made no progress for as long: no call on their Activity and, outside of a training, no use
///     of a processor, input or output. These are named. While they make progress, the others wait
///     without a limit; warnings name those that compute, read or write without calls on their
///     Activity: after stall_timeout, and each time the wait has doubled;
///   - a rank has reached the end of its session, and another is in a collective that needs it:
///     within a few seconds;
///   - no replica has made progress for stall_timeout, unless none is in a collective and one is
///     idle or starting; ranks that have left are named.
/// Time in which a process was suspended does not count, so a job that was suspended as a whole can
/// continue.
///
/// The destructor sends a goodbye: the rank is no longer watched, and its exit is not a failure.
/// During the unwinding of an exception it also announces the error: for ten seconds no rank's exit
/// is reported, so that the error itself is reported first. The thread blocks all signals and never
/// uses the transport. If the process has the privilege, the thread has real-time priority, so that
/// it reports a lost rank before the launcher ends the job.
class Watchdog {
 public:
  /// For a job of one process: watches `replicas`, which must outlive it.
  Watchdog(std::vector<const Activity*> replicas, WatchdogOptions options);
  /// For the job of `ranks`. Collective; they are used only in this constructor. `replicas`: the
  /// replicas of this rank, at least one; the number may differ between ranks. Throws Error
  /// (communication), the same on all ranks, if any of them cannot reach rank 0.
  Watchdog(const Communicator& ranks, std::vector<const Activity*> replicas,
           WatchdogOptions options);
  /// For ranks that are connected.
  Watchdog(std::unique_ptr<Agent> agent, std::vector<const Activity*> replicas,
           WatchdogOptions options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// Replaces the watched replicas with `replicas`, at least one. Thread-safe.
  void watch(std::vector<std::shared_ptr<const Activity>> replicas);
  /// Announces that this rank has failed and will exit: for ten seconds no rank's exit is reported,
  /// so that the error itself is reported first. Its replicas are still watched. Thread-safe.
  void announce_error();

 private:
  class Thread;

  std::unique_ptr<Thread> thread_;  // null if the timeout is 0
};

}  // namespace lockstep::inline v0::allreduce
