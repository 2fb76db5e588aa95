// Waiting by polling, for example for a message.
#pragma once

#include <chrono>

namespace lockstep::inline v0::allreduce {

class Transport;

/// Spins at first, then yields the core, then sleeps, because there may be more ranks than cores.
class Backoff {
 public:
  /// For a message of `transport`: sleeps until it arrives, if the transport can tell; at once if
  /// the members need the core more than this thread needs the message (`shares_cores`).
  explicit Backoff(Transport* transport = nullptr, bool shares_cores = false)
      : transport_(transport), shares_cores_(shares_cores) {}

  /// Pauses once. Returns true if the wait is long, so that the caller can check for other events.
  bool pause();
  /// Restarts after progress.
  void restart() { polls_ = 0; }

 private:
  Transport* transport_;
  bool shares_cores_;
  int polls_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lockstep::inline v0::allreduce
