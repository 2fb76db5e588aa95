// Ends a job that cannot go on, and says who is the cause: outside MPI and NCCL, on a thread of its own.
#pragma once

#include <mpi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"

namespace lockstep::allreduce {

class Post;

/// What the watchdog found.
struct WatchdogReport {
  std::string text;     ///< "[watchdog] needed …; rank 2, host H, …; ADVICE"
  bool speaks = false;  ///< whether this rank is the one to tell people
};

/// When a job counts as stuck, and who says so.
struct WatchdogOptions {
  double stall_timeout = 120;  ///< seconds; 0: no watchdog. Between ranks, that of rank 0 holds for all
  double heartbeat = 0;        ///< seconds between reports; 0: a fifth of the timeout, at most 1
  std::string advice{};        ///< ends the message: what to do
  std::string host{};          ///< of this rank, for messages; empty: as the system calls it
  /// Asked at every heartbeat, on the watchdog's thread: whether this process moves although no call on an Activity
  /// says so, for replicas that are in no collective. None: only those calls count.
  std::function<bool()> moves{};
  /// Called once, on the watchdog's thread, in place of the message and the exit. For tests.
  std::function<void(const WatchdogReport&)> on_failure{};
};

/// While it lives, every rank reports to rank 0 over TCP what its replicas do. Where the job cannot go on,
///
///     lockstep: error: [watchdog] needed progress within 120 s; rank 2, host H, step 100, waiting before bucket 3
///     (layers conv4 .. fc1) for 121 s in compute; ranks 0,1,3 are in it; ADVICE
///
/// goes to standard error (one line, from rank 0; from one rank of each host where it is rank 0 that is lost) and every
/// rank leaves with the exit status of a communication
/// error, without destructors, whatever its other threads wait for, within seconds. That is when
///   - a rank's process ends without a goodbye: at once;
///   - a rank is not heard of for stall_timeout: it was stopped, or its host cannot be reached;
///   - a replica has been in a collective for stall_timeout, and those that have not entered it made no progress (no
///     call on their Activity) for as long: they are named. While they make progress, the others wait for ever;
///   - no replica made progress for stall_timeout, unless none is in a collective and one is idle or starting: where a
///     rank has left, it is named.
/// Time in which a process was suspended does not count as its own waiting, so a job that is suspended as a whole goes
/// on afterwards.
///
/// The destructor says goodbye: the rank is not watched any more, and its end is no failure. During the unwinding of an
/// exception it says that too, and for ten seconds no rank's end is reported: the error itself is on its way.
/// Its thread blocks all signals and never calls MPI. Where the process has the right to it runs before all others, so
/// that a launcher that ends the job because of a lost rank comes too late to keep it from being named.
class Watchdog {
 public:
  /// For a job of one process: watches `replicas`, which outlive it.
  Watchdog(std::vector<const Activity*> replicas, WatchdogOptions options);
  /// For a job of `ranks`. Collective over it; MPI is used here and never again. `replicas`: those of this rank, at
  /// least one; ranks may differ in number. Throws Error (communication), the same on all ranks, where one of them
  /// cannot reach rank 0.
  Watchdog(MPI_Comm ranks, std::vector<const Activity*> replicas, WatchdogOptions options);
  /// For ranks that find each other without MPI.
  Watchdog(std::unique_ptr<Post> post, std::vector<const Activity*> replicas, WatchdogOptions options);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  /// From here on watches `replicas`, at least one, in place of those before. Any thread.
  void watch(std::vector<std::shared_ptr<const Activity>> replicas);
  /// This rank has failed and is about to leave: for ten seconds no rank's end is reported, since the error itself is
  /// on its way. Its replicas are watched as before. Any thread.
  void announce_error();

 private:
  class Thread;

  std::unique_ptr<Thread> thread_;  // none where the timeout is 0
};

}  // namespace lockstep::allreduce
