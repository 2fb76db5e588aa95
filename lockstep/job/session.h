// The session of a process in a job, and its ranks as one group for collectives in custom training loops.
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

/// How ranks communicate.
struct WorkersOptions {
  device::Device device = {};                            ///< device of this rank's gradients
  allreduce::Route route = allreduce::Route::automatic;  ///< for gradients; automatic: by where the ranks are
  /// Seconds without progress after which the watchdog ends the job with exit status 4 and reports the stalled rank; 0:
  /// never.
  double stall_timeout = 120;
  bool share_gpus = false;  ///< whether ranks may share a GPU
};

/// The ranks of a job as one group with one member per rank. Used on the thread that created it. Every rank must call
/// the same functions in the same order with the same counts; otherwise all ranks throw the same Error (communication).
class Workers {
 public:
  /// Collective over the ranks of `session`, which must outlive this object. Throws Error (input) for a route that
  /// cannot connect these ranks, and for a TF_CONFIG that does not match the launcher.
  explicit Workers(Session& session, const WorkersOptions& options = {});
  /// Wraps an existing group with one member per rank. It is not watched by a watchdog.
  Workers(Session& session, const allreduce::Communicator& group, device::Device device = {});
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  int rank() const { return group_.rank(); }         ///< of this process, from 0
  int size() const { return group_.size(); }         ///< ranks of the job
  Session& session() const { return session_; }      ///< of these ranks
  device::Device device() const { return device_; }  ///< device of this rank's gradients
  /// The route and the reason for it: "shared-memory (2 ranks on one node)".
  std::string route() const;

  /// Replaces values[i] with the sum (or maximum, minimum) of values[i] over all ranks, bitwise identical on all ranks.
  /// In place; `values` may be empty. Throws Error (communication).
  template <allreduce::Reducible T>
  void all_reduce(std::span<T> values, allreduce::ReduceOp op = allreduce::ReduceOp::sum) {
    settle();
    group_.all_reduce(values, op).wait();
  }

  /// Copies `values` of rank `root` to all ranks. The size is the same on all ranks. Throws Error (communication), and
  /// Error (input) if `root` is not a rank.
  template <typename T>
  void broadcast(std::span<T> values, int root = 0) {
    broadcast_bytes(std::as_writable_bytes(values), root);
  }

  /// Returns the `values` of all ranks, in rank order, on every rank; sizes may differ. At most 2 GiB in total. Throws
  /// Error (communication).
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
  /// Returns true on every rank if `mine` is true on any. Use it for every decision to stop, skip or save, so that all
  /// ranks agree. Throws Error (communication).
  bool any(bool mine);

  /// The underlying group, watched by the watchdog. Call settle() before using it while a GradientReducer exists.
  const allreduce::Communicator& group() const { return group_; }
  /// The thread that reduces gradients, overlapped with the backward pass. Only one thread of this process may use the
  /// group at a time.
  const std::shared_ptr<allreduce::CommunicationThread>& lane() const { return lane_; }
  /// Waits for all reductions in flight. Rethrows their exceptions.
  void settle() { lane_->wait(); }
  /// The current activity of this rank, for the watchdog.
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

/// If TF_CONFIG is set on any rank, it must match the launcher: as many workers as ranks, and the task's rank equal to
/// the MPI rank. Throws the same Error (input) on all ranks otherwise, because the workers would train separately.
/// Collective.
void check_tf_config(const Session& session);

/// Options of a session.
struct SessionOptions {
  bool quiet = false;  ///< warnings and errors only
  /// Seconds without progress after which the watchdog ends the job with exit status 4 and reports the stalled rank.
  /// Used from the start of the session until a strategy or workers set their own; 0: no watchdog until then. The value
  /// of rank 0 applies to all ranks.
  double stall_timeout = 120;
  WorkersOptions workers = {};  ///< options of workers()
};

/// Owns the process-wide resources: MPI, the logger, the watchdog and the exit of the job. Create it first in main and
/// destroy it last; one per process. Under a launcher it initializes MPI (MPI_THREAD_SERIALIZED) and is one of several
/// ranks; without a launcher it is a job of one rank and does not use MPI. If the program has already initialized MPI,
/// the session uses a duplicate of MPI_COMM_WORLD. The program must then finalize MPI after the end of the session, and
/// must not call MPI from other threads while a reduction is in flight.
///
///     int main(int argc, char** argv) {
///       lockstep::Session session(argc, argv);
///       return session.guard([&] { … return 0; });
///     }
class Session {
 public:
  /// Throws Error (communication) if MPI does not support MPI_THREAD_SERIALIZED or was already finalized, or if a
  /// launcher started several ranks but MPI has only one: every process would train alone. Throws Error (input) if this
  /// is one of several tasks that were started without MPI (job/task.h), for the same reason.
  Session(int argc, char** argv, const SessionOptions& options = {});
  /// For code without access to the command line.
  explicit Session(const SessionOptions& options = {}) : Session(0, nullptr, options) {}
  /// Finalizes MPI. During stack unwinding it aborts the whole job instead, so that the other ranks do not wait for
  /// this one.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }              ///< of this process, from 0
  int size() const { return size_; }              ///< ranks of the job
  int world_size() const { return size_; }        ///< same as size()
  bool is_chief() const { return rank_ == 0; }    ///< whether this is rank 0, which writes files
  int node() const { return node_; }              ///< number of this rank's host
  int nodes() const { return nodes_; }            ///< hosts of the job
  int local_rank() const { return local_rank_; }  ///< among the ranks of this node
  int local_size() const { return local_size_; }  ///< ranks of this node

  /// The group of all ranks; MPI_COMM_NULL without a launcher.
  MPI_Comm ranks() const { return ranks_; }
  /// The logger of this process.
  const std::shared_ptr<Logger>& logger() const { return logger_; }
  /// Seconds since this object was created.
  double seconds() const;

  /// Returns `mine` of all ranks, in rank order, on every rank. Collective. For setup; must not be called while
  /// replicas of a strategy are running.
  std::vector<std::string> all_gather(const std::string& mine) const;
  /// Returns once every rank has called it.
  void barrier() const;

  /// The ranks as one group with one replica per rank, for custom training loops. Created by the first call, which is
  /// collective.
  Workers& workers();

  /// Runs `body` and returns its exit status. An exception is printed as one line,
  /// `lockstep: error: [where] expected …, got …`, and gives the exit status of its category (lockstep/base/error.h).
  /// If the other ranks do not fail within one second as well, the whole job is aborted.
  int guard(const std::function<int()>& body);

  /// Within guard(): compares the failure of this rank with those of the others and prints it if this rank is the one
  /// to print. Called before stack unwinding, because destructors may take long. Does nothing outside guard(), where
  /// exceptions belong to the program, and nothing for a failure that was already reported.
  void report(const Failure& failure);

  /// The current activity of this process, for the watchdog, which runs from the start of the session to its end. A
  /// program that waits for longer than the stall timeout without computing, reading or writing must call its tick().
  allreduce::Activity& activity() const { return *activity_; }
  /// activity(), with shared ownership.
  const std::shared_ptr<allreduce::Activity>& shared_activity() const { return activity_; }
  /// Watches `replicas` from now on with `options`. The first replica is shared_activity(). Collective.
  void watch(const std::vector<std::shared_ptr<allreduce::Activity>>& replicas, allreduce::WatchdogOptions options);
  /// Watches this process only from now on, until its end, with the previous options.
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
  std::exception_ptr start_error_;  // of the watchdog; thrown by guard(), not by the constructor
  bool is_guarding_ = false;
  std::optional<Failure> reported_;
  FailureVerdict verdict_;                         // on the reported failure
  std::unique_ptr<allreduce::Watchdog> watchdog_;  // last member: it uses the others
};

}  // namespace lockstep::job
