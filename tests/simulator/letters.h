// Simulated letters: messages between two members, matched by tags.
#pragma once

#include <cstdint>

#include "tests/simulator/schedule.h"

namespace lockstep::inline v0::simulator {

Outcome run_letters(std::uint64_t seed);

}  // namespace lockstep::inline v0::simulator
