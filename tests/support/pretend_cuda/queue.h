// A thread that does the work of one stream in order, and now and then dawdles, so that what is not
// ordered shows.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

namespace lockstep::pretend {

/// Comes once.
class Moment {
 public:
  void come();
  bool has_come() const;
  void wait() const;
  /// Only after it has come.
  std::chrono::steady_clock::time_point time() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  bool has_come_ = false;
  std::chrono::steady_clock::time_point time_;
};

class Queue {
 public:
  explicit Queue(unsigned seed);
  /// Waits for what was given.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  void give(std::function<void()> work);
  /// Comes when everything given so far is done; the queue is idle then, unless it was given more.
  std::shared_ptr<Moment> mark();
  bool is_idle() const;

 private:
  struct Task {
    std::function<void()> work;
    std::shared_ptr<Moment> done;  // or nobody asks
  };

  void give(Task task);
  void work();

  mutable std::mutex mutex_;
  std::condition_variable given_;
  std::deque<Task> waiting_;  // the first one may be running
  bool ends_ = false;
  std::minstd_rand dice_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace lockstep::pretend
