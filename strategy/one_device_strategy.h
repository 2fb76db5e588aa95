#pragma once

#include "strategy/strategy.h"

namespace lockstep::strategy {

/// One replica, in one process.
class OneDeviceStrategy final : public Strategy {
 public:
  /// Throws Error (input) in a job of several ranks.
  explicit OneDeviceStrategy(Session& session, device::Device device = {}, const StrategyOptions& options = {});
  std::string name() const override { return "one-device"; }
};

}  // namespace lockstep::strategy
