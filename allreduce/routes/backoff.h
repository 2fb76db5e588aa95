// How a thread waits for something that only asking reveals, such as an MPI request.
#pragma once

#include <chrono>

namespace lockstep::allreduce {

/// At first returns at once, then leaves the core to whoever wants it, then sleeps: ranks may outnumber cores.
class Backoff {
 public:
  /// True where the wait has become long and there is time to look at other things.
  bool pause();
  /// For when something happened.
  void restart() { looks_ = 0; }

 private:
  int looks_ = 0;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace lockstep::allreduce
