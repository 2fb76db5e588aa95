// Counters of the graph API of the simulated cuDNN, for tests.
#pragma once

#include <cstdint>

namespace lockstep::inline v0::pretend {

/// Number of runs of operation graphs on simulated GPUs.
std::uint64_t graph_runs();
/// Number of requested plans, including failing engines.
std::uint64_t graph_plans();

}  // namespace lockstep::inline v0::pretend
