// The thread of reductions that overlap with the computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::inline v0::allreduce {

/// A thread that runs submitted operations in order and sleeps while there are none.
class CommunicationThread {
 public:
  CommunicationThread();
  /// Waits for all submitted operations.
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  /// Submits `operation`, which runs after all earlier ones. It does not run if one of these threw.
  void submit(std::function<void()> operation);
  /// Returns when all submitted operations are done. Rethrows the first exception, in each call.
  void wait();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable submitted_;
  std::condition_variable done_;
  std::deque<std::function<void()>> operations_;  // the first one may be running
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::inline v0::allreduce
