// A custom training loop with a DistributedOptimizer and an injected fault.
#pragma once

#include <chrono>
#include <cstdint>

#include "tests/faults/faults.h"

namespace lockstep::inline v0::faults {

struct WrappedLoop {
  Fault fault;
  WorkersOptions workers;
  std::int64_t steps = 20;
  std::chrono::milliseconds pause{0};  ///< before each step
  bool in_group = false;               ///< over a group of all ranks in reverse
};

/// Runs the loop on this rank and returns the exit status. The chief prints its first steps like
/// faulty_training.
int run(Session& session, const WrappedLoop& loop);

}  // namespace lockstep::inline v0::faults
