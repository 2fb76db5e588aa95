// The session of a process in a job.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/allreduce/groups/route.h"
#include "lockstep/base/log.h"
#include "lockstep/device/device.h"
#include "lockstep/job/launch/transport_choice.h"

namespace lockstep::inline v0::allreduce {
class Communicator;
class LetterThread;
class Transport;
class Watchdog;
struct WatchdogOptions;
}  // namespace lockstep::inline v0::allreduce

namespace lockstep::inline v0::job {

struct Failure;
struct OperatorSettings;
class StartMonitor;
class Workers;

/// How ranks communicate.
struct WorkersOptions {
  device::Device device = {};  ///< device of this rank's gradients
  /// For gradients; automatic: by where the ranks are.
  allreduce::Route route = allreduce::Route::automatic;
  /// Seconds without progress after which the watchdog ends the job with exit status 4 and reports
  /// the stalled rank; 0: never. A rank that computes, reads or writes is only warned about.
  /// LOCKSTEP_STALL_TIMEOUT in the environment of rank 0 overrides it.
  double stall_timeout = 120;
  bool share_gpus = false;  ///< whether ranks may share a GPU
};

/// The group of ranks that a session keeps for its program.
class SessionGroup {
 public:
  virtual ~SessionGroup() = default;
  virtual void wait_pending() = 0;                    ///< waits for all reductions in flight
  virtual void abort(const std::string& reason) = 0;  ///< makes the collectives of all ranks throw
};

/// A job that the program describes.
struct DescribedJob {
  int rank = 0;              ///< number of this process
  int ranks = 1;             ///< number of processes
  std::string address = {};  ///< "host:port" where rank 0 listens
  /// A socket of rank 0 that listens there, which the session closes; -1: it opens one.
  int listener = -1;
  /// At least 16 bytes, the same on all ranks; empty: the ranks are of one user on one host.
  std::string secret = {};
};

/// Options of a session.
struct SessionOptions {
  bool quiet = false;    ///< warnings and errors only; `fit` does not print its progress
  bool verbose = false;  ///< messages about details too
  /// Seconds without progress after which the watchdog ends the job with exit status 4 and reports
  /// the stalled rank. Used from the start of the session until a strategy or workers set their
  /// own; 0: no watchdog until then. The value of rank 0 applies to all ranks, and
  /// LOCKSTEP_STALL_TIMEOUT in its environment overrides every value but that 0.
  double stall_timeout = 120;
  WorkersOptions workers = {};  ///< options of workers()
  /// Seconds that the start of a job of several ranks may take, up to the end of the constructor of
  /// Session; then the process ends with exit status 4 and names the call that has not returned
  /// (lockstep/job/launch/start_monitor.h). 0: no limit. nullopt: 60, or `stall_timeout` if that is
  /// shorter.
  std::optional<double> start_timeout = {};
  /// The communicator of the ranks that create this session, as the integer that MPI_Comm_c2f
  /// returns (lockstep/mpi.h converts it). MPI is then initialized by the program. All ranks of the
  /// communicator create a session; other ranks do not. nullopt: MPI_COMM_WORLD.
  std::optional<int> communicator = {};
  /// What carries messages between ranks. With tcp the ranks find each other by RANK, WORLD_SIZE,
  /// MASTER_ADDR and MASTER_PORT, TF_CONFIG or the variables of a Slurm step (job/launch/task.h),
  /// and prove to each other that they know LOCKSTEP_JOB_SECRET; without one they must be of one
  /// user on one host. LOCKSTEP_TRANSPORT overrides it.
  TransportChoice transport = TransportChoice::automatic;
  /// The job, if the program describes it and not its environment. The transport is tcp. A process
  /// may have several such sessions, of different jobs and beside one that its launcher describes.
  /// When ranks are lost, the process goes on: the collectives of this session throw.
  std::optional<DescribedJob> job = {};
  /// A monitor that the program started earlier; null: the session creates one.
  std::shared_ptr<StartMonitor> start_monitor = {};
};

/// Owns the process-wide resources: MPI, the logger, the watchdog and the exit of the job. Create
/// it first in main and destroy it last; one per process, except those of SessionOptions::job.
/// Under a launcher it initializes MPI (MPI_THREAD_SERIALIZED) and is one of several ranks; without
/// a launcher it is a job of one rank and does not use MPI. If the program has already initialized
/// MPI, the session uses a duplicate of MPI_COMM_WORLD, or of SessionOptions::communicator. The
/// program must then finalize MPI after the end of the session, and must not call MPI from other
/// threads while a reduction is in flight.
///
///     int main(int argc, char** argv) {
///       return lockstep::run(argc, argv, [&](lockstep::Session& session) { … });
///     }
class Session {
 public:
  /// Throws Error (communication) if the launcher's MPI cannot be loaded, does not support
  /// MPI_THREAD_SERIALIZED or was already finalized, or if a launcher started several ranks but MPI
  /// has only one: every process would train alone. Throws Error (input) if this is one of several
  /// tasks that were started without MPI (job/launch/task.h), for the same reason, also if the
  /// program has initialized MPI with one rank; for a communicator that is not one of ranks of this
  /// program; and while the process has another session. After it has ended, another one is
  /// possible only if MPI was initialized by the program or is not used.
  Session(int argc, char** argv, const SessionOptions& options = {});
  /// For code without access to the command line.
  explicit Session(const SessionOptions& options = {}) : Session(0, nullptr, options) {}
  /// Finalizes MPI. During stack unwinding it aborts the whole job instead, so that the other ranks
  /// do not wait for this one.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return rank_; }              ///< 0 to size() - 1
  int size() const { return size_; }              ///< ranks of the job
  int world_size() const { return size_; }        ///< same as size()
  bool is_chief() const { return rank_ == 0; }    ///< whether this is rank 0, which writes files
  int node() const { return node_; }              ///< number of this rank's host
  int nodes() const { return nodes_; }            ///< hosts of the job
  int local_rank() const { return local_rank_; }  ///< among the ranks of this node
  int local_size() const { return local_size_; }  ///< ranks of this node

  /// The communicator of all ranks, as the integer that MPI_Comm_c2f returns; nullopt without
  /// MPI.
  std::optional<int> communicator() const { return communicator_; }
  /// Whether this is a rank of a job, possibly the only one; false for a process that was started
  /// alone.
  bool is_connected() const { return is_connected_; }
  /// What carries messages between the ranks: "mpi", "tcp", or "none" for a process that was
  /// started alone.
  std::string transport() const {
    if (!is_connected_) return "none";
    return communicator_ ? "mpi" : "tcp";
  }
  /// Why: "Open MPI v4.1.4 of mpirun", "RANK and WORLD_SIZE"; empty for a process that was started
  /// alone.
  const std::string& transport_reason() const { return transport_reason_; }
  /// The ranks as a group for setup and control, one member each. Used by one thread at a time.
  const allreduce::Communicator& ranks() const;
  /// Messages between two ranks of SessionOptions::job; null in other sessions, and for one rank.
  std::shared_ptr<allreduce::LetterThread> letters() const;
  /// The logger of this process.
  const std::shared_ptr<Logger>& logger() const { return logger_; }
  /// What the environment of rank 0 sets (lockstep/job/operator_settings.h).
  const OperatorSettings& settings() const;
  /// Seconds since this object was created.
  double seconds() const;

  /// Returns `mine` of all ranks, in rank order, on every rank. Collective. For setup; must not be
  /// called while replicas of a strategy are running.
  std::vector<std::string> all_gather(const std::string& mine) const;
  /// Returns once every rank has called it.
  void barrier() const;

  /// The ranks as one group with one replica per rank, for custom training loops
  /// (lockstep/job/workers.h). Created by the first call, which is collective.
  Workers& workers();

  /// Runs `body` and returns its exit status. An exception is printed as one line, `lockstep:
  /// error: [where] expected …, got …`, with rank, host and step unless all ranks have the same,
  /// and returns the exit status of its category (lockstep/base/error.h). If the other ranks do not
  /// fail within one second as well, the whole job is aborted. lockstep::run() is a session with
  /// its guard.
  int guard(const std::function<int()>& body);

  /// Within guard(): compares the failure of this rank with those of the others and prints it if
  /// this rank is the one to print. Called before stack unwinding, because destructors may take
  /// long. Outside guard(), where exceptions belong to the program, it only writes the flight
  /// recorder's events (base/trace/recording.h). Does nothing for a failure that was already
  /// reported.
  void report(const Failure& failure);

  /// Discards a failure that all ranks had, so that the next one is reported. Call it when all
  /// ranks start over.
  void reset_failure();

  /// The current activity of this process, for the watchdog, which runs from the start of the
  /// session to its end. A program that waits for longer than the stall timeout without computing,
  /// reading or writing must call its tick(); one that works for that long while other ranks wait
  /// for it is warned about unless it does.
  allreduce::Activity& activity() const { return *activity_; }
  /// activity(), with shared ownership.
  const std::shared_ptr<allreduce::Activity>& shared_activity() const { return activity_; }
  /// Watches `replicas` from now on with `options`. The first replica is shared_activity().
  /// Collective. Returns the number of the watch.
  std::uint64_t watch(const std::vector<std::shared_ptr<allreduce::Activity>>& replicas,
                      const allreduce::WatchdogOptions& options);
  /// Ends watch `number`. If it was the latest, the replicas of the one before it are watched
  /// again, or this process only, with the latest options.
  void end_watch(std::uint64_t number);
  /// Watches this process also in a group of ranks, whose collectives `activity` records. Not
  /// collective.
  void watch_group(std::shared_ptr<allreduce::Activity> activity);
  /// Ends watch_group() of `activity`.
  void end_group(const std::shared_ptr<allreduce::Activity>& activity);
  /// Reports, for a scope, that this process is in a collective, and so are all of its replicas.
  allreduce::CollectiveScope enter(const char* operation) const;

 private:
  struct State;

  void connect_over_tcp(const SessionOptions& options, double limit, StartMonitor& monitor);
  void use(std::shared_ptr<allreduce::Transport> transport);
  void initialize_mpi(int argc, char** argv, std::optional<int> communicator,
                      StartMonitor& monitor);
  std::string place() const;
  void set_group(std::optional<allreduce::Communicator> group);
  void find_nodes(const allreduce::Transport& transport);
  void wait_for_others() const;
  void finish_reductions();
  void enter_end(bool counts);
  void start_watchdog(const std::vector<std::shared_ptr<allreduce::Activity>>& replicas,
                      allreduce::WatchdogOptions options);
  void watch_current();
  [[noreturn]] void end_job(int exit_status) const;

  bool owns_mpi_ = false;
  bool is_connected_ = false;
  std::optional<int> communicator_;
  std::string transport_reason_;
  int rank_ = 0;
  int size_ = 1;
  int node_ = 0;
  int nodes_ = 1;
  int local_rank_ = 0;
  int local_size_ = 1;
  std::shared_ptr<Logger> logger_;
  WorkersOptions workers_options_;
  std::unique_ptr<SessionGroup> workers_;
  std::shared_ptr<allreduce::Activity> activity_ = std::make_shared<allreduce::Activity>();
  std::unique_ptr<State> state_;                   // private to session.cpp
  std::unique_ptr<allreduce::Watchdog> watchdog_;  // last member: it uses the others
};

}  // namespace lockstep::inline v0::job
