// Waiting by polling, for example for a message.
#pragma once

#include <chrono>

namespace lockstep::inline v0::allreduce {

/// Spins at first, then yields the core, then sleeps, because there may be more ranks than cores.
class Backoff {
 public:
  /// Pauses once. Returns true if the wait is long, so that the caller can check for other events.
  bool pause();
  /// Restarts after progress.
  void restart() { polls_ = 0; }

 private:
  int polls_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lockstep::inline v0::allreduce
