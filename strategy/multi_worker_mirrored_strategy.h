#pragma once

#include <vector>

#include "strategy/strategy.h"

namespace lockstep::strategy {

/// Replicas on all ranks of an MPI job, one or several per rank, on one node or many. Rank 0 is chief.
///
/// Where TF_CONFIG is set it must agree with MPI: as many workers as ranks, and this task's number this rank.
class MultiWorkerMirroredStrategy final : public Strategy {
 public:
  /// `devices`: one per replica of this rank; ranks may have different numbers of them. Throws Error (input) without a
  /// device and for a TF_CONFIG that is malformed or disagrees. Without a launcher it is a job of one rank.
  explicit MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices = {device::Device{}},
                                       const StrategyOptions& options = {});
  std::string name() const override { return "multi-worker-mirrored"; }
  allreduce::Selection selection() const override { return selection_; }

 private:
  MultiWorkerMirroredStrategy(Session& session, std::vector<device::Device> devices, const StrategyOptions& options,
                              allreduce::Selection selection);

  allreduce::Selection selection_;
};

}  // namespace lockstep::strategy
