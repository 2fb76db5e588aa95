// The ranks of a job as one group, a replica each: what code with a training loop of its own reduces with.
#pragma once

#include <mpi.h>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/communication_thread.h"
#include "lockstep/allreduce/communicator.h"
#include "lockstep/allreduce/route.h"
#include "lockstep/allreduce/watchdog/watchdog.h"
#include "lockstep/base/log.h"
#include "lockstep/device/device.h"
#include "lockstep/job/failure.h"
#include "lockstep/job/launcher.h"

namespace lockstep::job {

class Session;

/// How ranks reduce with each other.
struct WorkersOptions {
  device::Device device = {};                            ///< where this rank's gradients lie
  allreduce::Route route = allreduce::Route::automatic;  ///< how gradients travel; automatic: by where the ranks are
  /// Seconds without progress after which the job ends with exit status 4 and the name of the culprit (Watchdog); 0 for
  /// never.
  double stall_timeout = 120;
  bool share_gpus = false;  ///< whether ranks may have the same GPU
};

/// One member a rank, used on the thread that made this object. Every rank calls the same functions in the same order
/// with the same counts; where they differ, all ranks throw the same Error (communication).
class Workers {
 public:
  /// Collective over the ranks of `session`, which outlives this object. Throws Error (input) for a route that does not
  /// connect these ranks and for a TF_CONFIG that disagrees with the launcher.
  explicit Workers(Session& session, const WorkersOptions& options = {});
  /// Over a group that exists, one member a rank of it, which no watchdog watches.
  Workers(Session& session, const allreduce::Communicator& group, device::Device device = {});
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  int rank() const { return group_.rank(); }         ///< of this process among all, from 0
  int size() const { return group_.size(); }         ///< ranks of the job
  Session& session() const { return session_; }      ///< whose ranks these are
  device::Device device() const { return device_; }  ///< where this rank's gradients lie
  /// What moves the bytes, and why: "shared-memory (2 ranks on one node)".
  std::string route() const;

  /// values[i] becomes the sum (or maximum, minimum) over all ranks of their values[i]: the same bits on each. In
  /// place; `values.size()` in elements, may be 0. Throws Error (communication).
  template <allreduce::Reducible T>
  void all_reduce(std::span<T> values, allreduce::ReduceOp op = allreduce::ReduceOp::sum) {
    settle();
    group_.all_reduce(values, op).wait();
  }

  /// Every rank's `values` become those of rank `root`. Same size everywhere. Throws Error (communication), and Error
  /// (input) for a root that is no rank.
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }

  /// Every rank's `values`, in rank order, on every rank; sizes may differ. 2 GiB in all at most. Throws Error
  /// (communication).
  template <typename T>
  std::vector<std::vector<T>> all_gather(std::span<const T> values) {
    std::vector<std::vector<T>> all;
    for (const std::vector<std::byte>& bytes : gather_bytes(std::as_bytes(values))) {
      const auto* begin = reinterpret_cast<const T*>(bytes.data());
      all.emplace_back(begin, begin + bytes.size() / sizeof(T));
    }
    return all;
  }

  /// Returns once every rank has called it. Throws Error (communication).
  void barrier();
  /// True on every rank if `mine` is true on any: the one way to stop, skip, save or leave. Throws Error
  /// (communication).
  bool any(bool mine);

  /// The group itself, shown to the watchdog. Before it is used beside a GradientReducer, call settle().
  const allreduce::Communicator& group() const { return group_; }
  /// Where gradients are reduced beside the computation. Of all threads of this process one at a time is in the group.
  const std::shared_ptr<allreduce::CommunicationThread>& lane() const { return lane_; }
  /// Waits for the reductions that were begun beside the computation. Throws what they threw.
  void settle() { lane_->wait(); }
  /// What this rank is doing, for the watchdog.
  allreduce::Activity& activity() { return *activity_; }

 private:
  void broadcast_bytes(std::span<std::byte> values, int root);
  std::vector<std::vector<std::byte>> gather_bytes(std::span<const std::byte> values);

  Session& session_;
  device::Device device_;
  std::string reason_;
  std::shared_ptr<allreduce::Activity> activity_;
  allreduce::Communicator group_;
  std::shared_ptr<allreduce::CommunicationThread> lane_ = std::make_shared<allreduce::CommunicationThread>();
  bool is_watched_ = false;
};

/// Where TF_CONFIG is set on any rank it must agree with the launcher: as many workers as ranks, and that task's number
/// its rank. Throws the same Error (input) on all ranks otherwise: each of the workers that somebody meant would train
/// alone. Collective.
void check_tf_config(const Session& session);

// The one object of a process that owns what is outside it: MPI, messages, the way out.

/// How a session speaks.
struct SessionOptions {
  bool quiet = false;  ///< warnings and errors only
  /// Seconds without progress after which the job ends with exit status 4 and the name of the culprit (Watchdog), from
  /// the start of the session until a strategy or workers bring their own; 0: nothing watches until then. That of rank
  /// 0 holds for all.
  double stall_timeout = 120;
  WorkersOptions workers = {};  ///< how its ranks reduce with each other, where they do so through workers()
};

/// Made first in main, destroyed last; one per process. Under a launcher it initialises MPI (MPI_THREAD_SERIALIZED) and
/// is a rank among others; without one it is a job of one rank and MPI is never touched. Where the program has
/// initialised MPI itself, the session joins it, on a communicator of its own, and leaves its end to the program, which
/// finalizes MPI after the session's end and calls it from no other thread while a reduction is under way.
///
///     int main(int argc, char** argv) {
///       lockstep::strategy::Session session(argc, argv);
///       return session.guard([&] { … return 0; });
///     }
class Session {
 public:
  /// Throws Error (communication) where MPI cannot serve several threads in turn or has ended already, or where a
  /// launcher started several ranks and MPI shows one: then every process would train alone. Error (input) where this
  /// is one of several tasks that were started without MPI (strategy/task.h), for the same reason.
  Session(int argc, char** argv, const SessionOptions& options = {});
  /// The same for code that has no command line at hand.
  explicit Session(const SessionOptions& options = {}) : Session(0, nullptr, options) {}
  /// Ends MPI. During the unwinding of an exception it ends the whole job instead, so that the other ranks do not wait
  /// for this one.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }              ///< of this process among all, from 0
  int size() const { return size_; }              ///< ranks of the job
  int world_size() const { return size_; }        ///< the same, as code around one replica a rank calls it
  bool is_chief() const { return rank_ == 0; }    ///< whether it is rank 0, which writes
  int node() const { return node_; }              ///< number of this rank's host
  int nodes() const { return nodes_; }            ///< hosts of the job
  int local_rank() const { return local_rank_; }  ///< among the ranks of this node
  int local_size() const { return local_size_; }  ///< ranks of this node

  /// The group of all ranks; MPI_COMM_NULL without a launcher.
  MPI_Comm ranks() const { return ranks_; }
  /// Where messages go, for those who add some.
  const std::shared_ptr<Logger>& logger() const { return logger_; }
  /// Seconds since this object was made.
  double seconds() const;

  /// Every rank's `mine`, in rank order, on every rank. Collective, for set-up; not while a strategy's replicas are at
  /// work.
  std::vector<std::string> all_gather(const std::string& mine) const;
  /// Returns once every rank has called it.
  void barrier() const;

  /// The ranks as one group, a replica each: for reductions in a training loop of one's own. Made when first asked for,
  /// which is collective.
  Workers& workers();

  /// Runs `body` and returns its exit status. What it throws becomes one line `lockstep: error: [where] need; given`
  /// and the exit status of its category (lockstep/base/error.h). Where the other ranks do not fail within a second as
  /// well, the whole job is ended.
  int guard(const std::function<int()>& body);

  /// Within guard(): compares the failure of this rank with those of the others and prints its line, where it is this
  /// rank's to print, before the destructors that the exception is about to run, which may take long. Does nothing
  /// outside of guard(), where exceptions are the program's, and nothing for a failure that was reported before.
  void report(const Failure& failure);

  /// What this process is doing, for the watchdog, which watches from the start of the session to its end. A program
  /// that waits for something for longer than the stall timeout, without computing, reading or writing, ticks it.
  allreduce::Activity& activity() const { return *activity_; }
  /// The same, for who keeps it.
  const std::shared_ptr<allreduce::Activity>& shared_activity() const { return activity_; }
  /// From here on watches `replicas`, the first of which is shared_activity(), as `options` say. Collective.
  void watch(const std::vector<std::shared_ptr<allreduce::Activity>>& replicas, allreduce::WatchdogOptions options);
  /// From here on watches this process alone, until its end, as the last options said.
  void watch_process(allreduce::Phase phase);

 private:
  void initialize_mpi(int argc, char** argv, const Launch& launch);
  void find_nodes();
  void wait_for_others() const;
  void settle_workers();
  FailureVerdict settle(const Failure& failure);
  void begin_end();
  [[noreturn]] void end_job(int exit_status) const;

  bool owns_mpi_ = false;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  MPI_Comm failures_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int node_ = 0;
  int nodes_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  int exceptions_at_start_ = 0;
  std::shared_ptr<Logger> logger_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  WorkersOptions workers_options_;
  std::unique_ptr<Workers> workers_;
  std::shared_ptr<allreduce::Activity> activity_ = std::make_shared<allreduce::Activity>();
  std::atomic<bool> watches_process_{true};
  std::exception_ptr start_error_;  // of the watchdog, for guard() to throw: whoever makes a session may not expect any
  bool is_guarding_ = false;
  std::optional<Failure> reported_;
  FailureVerdict verdict_;                         // on what was reported
  std::unique_ptr<allreduce::Watchdog> watchdog_;  // last: it looks at the others
};

}  // namespace lockstep::job
