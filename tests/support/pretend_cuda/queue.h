// A thread that executes the work of one stream in order. It pauses at random, so that missing
// synchronization shows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace lockstep::inline v0::pretend {

/// A point in a queue that completes once.
class Moment {
 public:
  void complete();
  bool is_complete() const;
  void wait() const;
  /// Requires is_complete().
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable completed_;
  bool is_complete_ = false;
  std::chrono::steady_clock::time_point time_;
};

class Queue {
 public:
  explicit Queue(unsigned seed);
  /// Waits for all enqueued work.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void enqueue(std::function<void()> work);
  /// Completes after all work enqueued so far; the queue is idle then unless more was enqueued.
  std::shared_ptr<Moment> mark();
  bool is_idle() const;

 private:
  struct Task {
    std::function<void()> work;
    std::shared_ptr<Moment> done;  // may be null
  };

  void enqueue(Task task);
  void work();

  mutable std::mutex mutex_;
  std::condition_variable enqueued_;
  std::deque<Task> waiting_;  // the first one may be running
  bool ends_ = false;
  std::minstd_rand dice_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::inline v0::pretend
