// A simulated node: members that share memory meet at its barrier.
#pragma once

#include <cstdint>

#include "tests/simulator/schedule.h"

namespace lockstep::inline v0::simulator {

Outcome run_node(std::uint64_t seed);

}  // namespace lockstep::inline v0::simulator
