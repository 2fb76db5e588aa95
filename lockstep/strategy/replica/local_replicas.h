// The replicas of this process, and the check that all replicas have the same values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/loss/loss.h"
#include "lockstep/model/network/network.h"
#include "lockstep/strategy/replica/replica.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::inline v0::strategy {

/// A tensor in which a replica differs from most others.
struct Disagreement {
  std::string tensor;  ///< "conv1/kernel", or "momentum of conv1/kernel"
  /// Replicas that differ from the most frequent value; with two replicas, the second.
  std::vector<int> differing_ranks;
};

/// Compares 64-bit hashes of every parameter, every optimizer slot and, if they must agree
/// (Replica::statistics_agree), every moving statistic over the group of `replica`. Returns the
/// first tensor, in parameter order, that differs between replicas; nullopt if none does. The
/// result is the same on all replicas. Sends one small message if all replicas agree. Collective.
std::optional<Disagreement> find_disagreement(Replica& replica);

/// The replicas of one model in this process, each created and used on its own thread. All replicas
/// of the job have the same parameters. All functions are collective.
class LocalReplicas {
 public:
  /// Creates the replicas, each on its device. `network` must be the same on every rank. Throws
  /// Error (input) for invalid options, or if they do not match the network. Collective.
  LocalReplicas(Strategy& strategy, std::shared_ptr<const model::Network> network,
                const TrainerOptions& options);
  ~LocalReplicas();
  LocalReplicas(const LocalReplicas&) = delete;
  LocalReplicas& operator=(const LocalReplicas&) = delete;

  Strategy& strategy() const { return strategy_; }  ///< the strategy of the replicas
  /// The network that each replica copies.
  const model::Network& network() const { return *network_; }
  const model::TotalLoss& loss() const { return plan_.loss; }  ///< the loss to minimize
  /// The number of classes of the loss, as in MetricSums.
  std::int64_t classes() const { return classes_; }
  const model::Metrics& metrics() const {
    return plan_.metrics;
  }  ///< metrics in addition to MetricSums
  /// Local replica `local`.
  Replica& operator[](int local) { return *replicas_[static_cast<std::size_t>(local)]; }

  /// Calls body(replica, local) on every local replica's thread.
  void run(const std::function<void(Replica&, int)>& body);

  /// Sets initial parameters and buffers, which are a pure function of (seed, name).
  void initialize(std::uint64_t seed);
  /// Copies the arrays of arrays(), which the caller may have changed, to all replicas of this
  /// process. Used after a restore.
  void broadcast_parameters();

  /// Throws the same Error (communication) on all ranks unless all replicas of the job have the
  /// same parameters, optimizer slots and, if required, moving statistics. The message names the
  /// first tensor that differs, its replicas, and the last step at which all replicas agreed.
  void check_agreement(std::int64_t step);

  /// Returns parameters, buffers and, if `with_slots`, optimizer slots of local replica 0 in host
  /// memory: views of the replica's arrays on the CPU, else copies. Valid until the next call.
  checkpoint::ReplicaArrays arrays(bool with_slots);

  /// Returns the sums over all replicas of the job since the last call.
  model::MetricSums take_metrics();
  /// Returns the totals of metrics() over all replicas of the job since the last call.
  model::MetricTotals take_metric_totals();

  /// Number of updates in the optimizer slots, for the bias correction of Adam; continues in the
  /// next training of these replicas.
  std::int64_t updates() const { return updates_; }
  void set_updates(std::int64_t updates) { updates_ = updates; }  ///< see updates()

 private:
  Strategy& strategy_;
  std::shared_ptr<const model::Network> network_;
  LossPlan plan_;
  std::int64_t classes_;
  std::int64_t agreed_step_ = -1;  // step of the last successful check
  std::int64_t updates_ = 0;
  std::vector<std::unique_ptr<Replica>> replicas_;
  // Storage of arrays(): parameters, buffers, slots in the order of their names.
  std::vector<device::HostView> views_;
};

}  // namespace lockstep::inline v0::strategy
