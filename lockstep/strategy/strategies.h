// A strategy by name, as `--strategy` gives it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/strategy/strategy.h"

namespace lockstep::strategy {

/// One replica, in one process.
class OneDeviceStrategy final : public Strategy {
 public:
  /// Throws Error (input) in a job of several ranks.
  explicit OneDeviceStrategy(job::Session& session, device::Device device = {}, const StrategyOptions& options = {});
  std::string name() const override { return "one-device"; }
};

/// Several replicas in one process, a thread each. The same device may be named several times: logical replicas that
/// share its cores.
class MirroredStrategy final : public Strategy {
 public:
  /// `devices`: one per replica, at least one. Throws Error (input) in a job of several ranks, or without a device.
  MirroredStrategy(job::Session& session, std::vector<device::Device> devices, const StrategyOptions& options = {});
  std::string name() const override { return "mirrored"; }
};

/// Replicas on all ranks of an MPI job, one or several per rank, on one node or many. Rank 0 is chief.
///
/// Where TF_CONFIG is set it must agree with MPI: as many workers as ranks, and this task's number this rank.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  /// `devices`: one per replica of this rank; ranks may have different numbers of them. Throws Error (input) without a
  /// device and for a TF_CONFIG that is malformed or disagrees. Without a launcher it is a job of one rank.
  explicit MultiWorkerMirroredStrategy(job::Session& session, std::vector<device::Device> devices = {device::Device{}},
                                       const StrategyOptions& options = {});
  std::string name() const override { return "multi-worker-mirrored"; }
  allreduce::Selection selection() const override { return selection_; }

 private:
  MultiWorkerMirroredStrategy(job::Session& session, std::vector<device::Device> devices,
                              const StrategyOptions& options, allreduce::Selection selection);

  allreduce::Selection selection_;
};

// A strategy by name, as `--strategy` gives it.

/// "auto", "one-device", "mirrored" or "multi-worker-mirrored". `auto` is multi-worker-mirrored in a job of several
/// ranks, else mirrored for several devices, else one-device. Throws Error (input) for an unknown name and for what
/// does not go together. Collective.
std::unique_ptr<Strategy> make_strategy(job::Session& session, std::string_view name,
                                        std::vector<device::Device> devices, const StrategyOptions& options = {});

}  // namespace lockstep::strategy
