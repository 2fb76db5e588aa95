// A loop of one's own around a DistributedOptimizer, which goes wrong as it is told to.
#pragma once

#include <chrono>
#include <cstdint>

#include "tests/faults/faults.h"

namespace lockstep::faults {

struct WrappedLoop {
  Fault fault;
  WorkersOptions workers;
  std::int64_t steps = 20;
  std::chrono::milliseconds pause{0};  ///< before each step
};

/// Runs it on this rank; the chief tells of its first steps as faulty_training does. The exit
/// status.
int run(Session& session, const WrappedLoop& loop);

}  // namespace lockstep::faults
