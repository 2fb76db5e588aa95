// One simulated job: some processes, their operations, a network that moves bytes when chance
// wants, and at most one fault. All of it follows from a number.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::inline v0::simulator {

struct Outcome {
  std::string failure = {};  ///< what a promise is broken by; empty: none
  std::uint64_t digest = 0;  ///< computed from all events
  std::uint64_t events = 0;
};

/// Runs the schedule of `seed` to its end. The same number has the same outcome.
Outcome run_schedule(std::uint64_t seed);

}  // namespace lockstep::inline v0::simulator
