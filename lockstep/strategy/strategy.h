// The replicas of a job: their devices, threads and communicators.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/fields/fields.h"
#include "lockstep/job/placement/placement.h"
#include "lockstep/job/session.h"
#include "lockstep/job/world.h"

namespace lockstep::inline v0::strategy {

class ReplicaThreads;
struct TrainerOptions;

/// How the replicas of a job work together.
struct StrategyOptions {
  /// Route of the gradient all-reduce. allreduce::RouteInfo describes each.
  allreduce::Route route = allreduce::Route::automatic;
  /// The route of an earlier run of the same training, which `automatic` reuses if possible.
  std::optional<allreduce::Route> remembered_route = {};
  /// Seconds without progress after which the watchdog reports the missing rank and ends the job
  /// with exit status 4; 0 disables it. LOCKSTEP_STALL_TIMEOUT in the environment of rank 0
  /// overrides it.
  double stall_timeout = 120;
  /// Whether ranks may share a GPU. An error by default, because ranks often share the first GPU by
  /// mistake.
  bool share_gpus = false;
};

/// The replicas of a job: their number, devices and communicators. Created once, collectively; see
/// OneDeviceStrategy, MirroredStrategy and MultiWorkerMirroredStrategy.
///
/// The local index of a replica is in 0 .. local_replicas()-1; its index in the job is
/// first_replica() + local index.
class Strategy {
 public:
  virtual ~Strategy();
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  /// "one-device", "mirrored", "multi-worker-mirrored", "local-steps".
  virtual std::string name() const = 0;
  /// A sentence that names the promises of synchronous training that it does not keep; empty: none.
  virtual std::string caveat(const TrainerOptions& /*options*/) const { return ""; }
  /// Returns `options` as its replicas use them. Throws Error (input) for options of another
  /// strategy. A second call changes nothing.
  virtual TrainerOptions adapted(TrainerOptions options) const;

  job::Session& session() const { return world_.session(); }      ///< the session of this process
  const job::World& world() const { return world_; }              ///< devices and communicators
  int num_replicas_in_sync() const { return world_.replicas(); }  ///< number of replicas of the job
  /// Number of replicas of this process.
  int local_replicas() const { return world_.local_replicas(); }
  /// The index in the job of this process's first replica.
  int first_replica() const { return world_.first_replica(); }
  /// Whether this process writes checkpoints, summaries and logs.
  bool is_chief() const { return session().is_chief(); }
  /// The device of local replica `local`.
  device::Device device(int local) const {
    return world_.devices()[static_cast<std::size_t>(local)];
  }
  /// Whether a local replica is on a GPU.
  bool has_gpu() const;
  /// The communicator of all replicas, for local replica `local`. Use only on that replica's
  /// thread, inside run().
  const allreduce::Communicator& group(int local) const { return world_.group(local); }
  /// The activity of local replica `local`, for the watchdog. Replica 0 also represents its
  /// process.
  allreduce::Activity& activity(int local) const { return world_.activity(local); }
  /// The communicator of the processes, one member each; its rank() is session().rank(). Use only
  /// on the thread that created this object, and not during run().
  const allreduce::Communicator& ranks() const { return world_.ranks(); }
  /// The route of the gradient all-reduce: "in-process", "ring", …
  std::string route() const { return group(0).route(); }
  /// The route between ranks and the reason for its choice; `automatic` and empty for a single
  /// rank.
  const allreduce::Selection& selection() const { return world_.selection(); }
  /// All replicas of the job, by index; the same on every rank.
  const std::vector<job::Placement>& placements() const { return placements_; }
  /// The placements as a human-readable table, one line per replica.
  std::string table() const { return job::placement_table(placements_); }

  /// Calls body(local) on every local replica's thread, and returns when all have finished. The
  /// first error aborts the collectives of the other replicas and is rethrown here. The strategy
  /// cannot be used afterwards: further calls throw Error (input).
  void run(const std::function<void(int local)>& body);

  /// Runs `body` on the calling thread. An exception aborts the collectives of all other replicas
  /// and ranks with its text, and is reported (Session::report) before it is rethrown, because
  /// stack unwinding may take long. The strategy cannot be used afterwards: further calls throw
  /// Error (input).
  void fail_together(const std::function<void()>& body);

  /// Throws Error (input) if an earlier error made the strategy unusable; the message names that
  /// error.
  void require_usable() const;

 protected:
  /// Creates one replica per device. Collective.
  Strategy(job::Session& session, std::vector<device::Device> devices,
           const StrategyOptions& options);
  /// Uses existing groups: groups[i] and devices[i] belong to local replica i.
  Strategy(job::Session& session, std::vector<device::Device> devices,
           std::vector<allreduce::Communicator> groups, allreduce::Communicator ranks,
           const StrategyOptions& options);

 private:
  void start(const StrategyOptions& options);
  void gather_placements(int cores);

  job::World world_;
  std::vector<job::Placement> placements_;
  std::unique_ptr<ReplicaThreads> threads_;
  std::optional<std::string> failure_;  // error that made the strategy unusable
};

}  // namespace lockstep::inline v0::strategy

namespace lockstep::inline v0 {

/// The options of a strategy.
template <>
struct Fields<strategy::StrategyOptions> {
  using Options = strategy::StrategyOptions;  ///< the struct
  /// Throws Error (input) as allreduce::parse_route().
  static void parse_route(Options& options, std::string_view name,
                          std::span<const std::string> values);
  static std::vector<std::string> print_route(const Options& options);  ///< name of the route
  static std::string describe_routes();  ///< what each route connects
  /// Its fields.
  static constexpr std::tuple list{
      TextField<Options>{{"allreduce", "Replicas", "Route of the gradient all-reduce: {}"},
                         parse_route,
                         print_route,
                         {.value = "ROUTE", .names = describe_routes}},
      Field{&Options::share_gpus,
            {"share_gpus", "Replicas",
             "Allow several ranks to use the same GPU, for tests; they reduce through host "
             "memory. Without this flag, a shared GPU is an error"}},
      Field{&Options::stall_timeout,
            {"stall_timeout", "Replicas",
             "Seconds without progress after which the job ends with status 4 and reports "
             "the missing rank; 0 disables the timeout. LOCKSTEP_STALL_TIMEOUT in the "
             "environment overrides it"},
            {},
            {.value = "SECONDS"}}};
};

}  // namespace lockstep::inline v0
