// Where reductions run beside the computation.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep::allreduce {

/// A thread that runs what it is given, one after the other, and sleeps while there is nothing.
class CommunicationThread {
 public:
  CommunicationThread();
  /// Waits for what was given.
  ~CommunicationThread();
  CommunicationThread(const CommunicationThread&) = delete;
  CommunicationThread& operator=(const CommunicationThread&) = delete;

  /// `operation` runs after all given before; not at all if one of these threw.
  void give(std::function<void()> operation);
  /// Returns when everything given is done. Throws what the first operation threw, each time.
  void wait();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable given_;
  std::condition_variable done_;
  std::deque<std::function<void()>> operations_;  // the first one may be running
  std::exception_ptr error_;
  bool ends_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::allreduce
