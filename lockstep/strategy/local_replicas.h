// Whether all replicas still hold the same numbers, and which one of which replica does not.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/device/host_view.h"
#include "lockstep/model/network.h"
#include "lockstep/strategy/replica.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::strategy {

/// A tensor in which a replica differs from most others.
struct Disagreement {
  std::string tensor;    ///< "conv1/kernel", or "momentum of conv1/kernel"
  std::vector<int> odd;  ///< replicas that differ from the most frequent value; with two replicas, the second
};

/// Compares 64-bit hashes of every parameter and every optimizer slot over the group of `replica`, and returns the
/// first tensor, in the order of the parameters, that is not the same everywhere; nothing if all are. The same answer
/// on all replicas. One small message where all is well. Collective.
std::optional<Disagreement> find_disagreement(Replica& replica);

// The replicas of this process, each made and used on its own thread.

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
  checkpoint::ReplicaArrays arrays(bool with_slots);

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
