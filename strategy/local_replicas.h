// The replicas of this process, each made and used on its own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "device/host_view.h"
#include "model/network.h"
#include "strategy/checkpoint.h"
#include "strategy/replica.h"
#include "strategy/strategy.h"

namespace lockstep::strategy {

/// Replicas of one model that hold the same parameters, here and on the other ranks. Everything here is collective.
class LocalReplicas {
 public:
  /// Makes them, each on its device; `network` is the same on every rank. Collective.
  LocalReplicas(Strategy& strategy, std::shared_ptr<const model::Network> network, const ReplicaOptions& options);
  ~LocalReplicas();
  LocalReplicas(const LocalReplicas&) = delete;
  LocalReplicas& operator=(const LocalReplicas&) = delete;

  Strategy& strategy() const { return strategy_; }             ///< where they are
  const model::Network& network() const { return *network_; }  ///< what each of them is a copy of
  bool has_accuracy() const { return has_accuracy_; }          ///< whether the loss knows classes
  /// The replica number `local` of this process.
  Replica& operator[](int local) { return *replicas_[static_cast<std::size_t>(local)]; }

  /// body(replica, local) on every local replica's thread.
  void run(const std::function<void(Replica&, int)>& body);

  /// Initial parameters and buffers, a pure function of (seed, name).
  void initialize(std::uint64_t seed);
  /// Gives what arrays() handed out, and has perhaps been changed since, to all replicas of this process: after a
  /// restore.
  void spread();

  /// Throws the same Error (communication) everywhere unless all replicas of the job hold the same parameters and
  /// optimizer slots; names the first tensor that differs, the replicas where it does, and when all still agreed.
  void check_agreement(std::int64_t step);

  /// Parameters, buffers and, where asked, optimizer slots of local replica 0, in host memory: the replica's own where
  /// it computes on the host, else copies, valid until the next call.
  ReplicaArrays arrays(bool with_slots);

  /// What all replicas of the job summed up since the last call.
  model::MetricSums take_metrics();

 private:
  Strategy& strategy_;
  std::shared_ptr<const model::Network> network_;
  bool has_accuracy_;
  std::int64_t agreed_step_ = -1;  // of the last check that all passed
  std::vector<std::unique_ptr<Replica>> replicas_;
  // What arrays() has handed out: parameters, buffers, slots in the order of their names.
  std::vector<device::HostView> views_;
};

}  // namespace lockstep::strategy
