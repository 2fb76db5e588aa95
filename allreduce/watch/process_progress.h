// Whether a process does anything, as the system sees it.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep::allreduce {

/// For work that calls nothing of ours, such as a program's own preparations or the building of an index: it moves
/// while its threads compute, read or write. A read that never returns, or a lock that is never released, does not.
class ProcessProgress {
 public:
  /// Whether the process has done anything worth mentioning since the last call. The calling thread does not count. By
  /// one thread.
  bool moved();

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point looked_at_ = Clock::now();
  double seconds_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::allreduce
