// The graph API of the pretended cuDNN, as tests see it.
#pragma once

#include <cstdint>

namespace lockstep::pretend {

/// How often a graph of operations has run on a pretended GPU.
std::uint64_t graph_runs();
/// How often a plan of one was asked for, of an engine that works or not.
std::uint64_t graph_plans();

}  // namespace lockstep::pretend
