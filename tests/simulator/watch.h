// A watched job on a simulated network, and the end of one that fails, under a virtual clock.
#pragma once

#include <cstdint>

#include "tests/simulator/schedule.h"

namespace lockstep::inline v0::simulator {

/// Ranks that compute and wait for each other, of which some end, stop, hang or become unreachable.
/// The watch of all others ends in time, names these, and nothing without a fault.
Outcome run_watch(std::uint64_t seed);

/// Ranks that fail at different times, or never, compare their failures.
Outcome run_failures(std::uint64_t seed);

}  // namespace lockstep::inline v0::simulator
