// A strategy by name, as `--strategy` gives it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "strategy/strategy.h"

namespace lockstep::strategy {

/// "auto", "one-device", "mirrored" or "multi-worker-mirrored". `auto` is multi-worker-mirrored in a job of several
/// ranks, else mirrored for several devices, else one-device. Throws Error (input) for an unknown name and for what
/// does not go together. Collective.
std::unique_ptr<Strategy> make_strategy(Session& session, std::string_view name, std::vector<device::Device> devices,
                                        const StrategyOptions& options = {});

}  // namespace lockstep::strategy
