#include "tests/support/pretend_cuda/queue.h"

#include <utility>

namespace lockstep::inline v0::pretend {

void Moment::complete() {
  const std::lock_guard lock(mutex_);
  is_complete_ = true;
  time_ = std::chrono::steady_clock::now();
  completed_.notify_all();
}

bool Moment::is_complete() const {
  const std::lock_guard lock(mutex_);
  return is_complete_;
}

void Moment::wait() const {
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [this] { return is_complete_; });
}

std::chrono::steady_clock::time_point Moment::time() const {
  const std::lock_guard lock(mutex_);
  return time_;
}

Queue::Queue(unsigned seed) : dice_(seed), thread_([this] { work(); }) {}

Queue::~Queue() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    enqueued_.notify_one();
  }
  thread_.join();
}

void Queue::enqueue(std::function<void()> work) { enqueue(Task{std::move(work), nullptr}); }

void Queue::enqueue(Task task) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(task));
  enqueued_.notify_one();
}

std::shared_ptr<Moment> Queue::mark() {
  auto moment = std::make_shared<Moment>();
  enqueue({[] {}, moment});
  return moment;
}

bool Queue::is_idle() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    enqueued_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    lock.unlock();
    if (dice_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    task.work();
    task.work = nullptr;  // may destroy what it holds
    lock.lock();
    waiting_.pop_front();
    if (task.done) task.done->complete();
  }
}

}  // namespace lockstep::inline v0::pretend
