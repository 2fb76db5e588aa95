// Simulated checkpoints: the ranks of a job save and restore, on a disk that fails.
#pragma once

#include <cstdint>

#include "tests/simulator/schedule.h"

namespace lockstep::inline v0::simulator {

/// Some jobs, one after the other, each of which continues the training of the one before.
Outcome run_saves(std::uint64_t seed);

}  // namespace lockstep::inline v0::simulator
