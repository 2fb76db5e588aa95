#pragma once

#include <vector>

#include "strategy/strategy.h"

namespace lockstep::strategy {

/// Several replicas in one process, a thread each. The same device may be named several times: logical replicas that
/// share its cores.
class MirroredStrategy final : public Strategy {
 public:
  /// `devices`: one per replica, at least one. Throws Error (input) in a job of several ranks, or without a device.
  MirroredStrategy(Session& session, std::vector<device::Device> devices, const StrategyOptions& options = {});
  std::string name() const override { return "mirrored"; }
};

}  // namespace lockstep::strategy
