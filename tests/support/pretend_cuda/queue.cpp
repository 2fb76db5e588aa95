#include "tests/support/pretend_cuda/queue.h"

#include <utility>

namespace lockstep::pretend {

void Moment::come() {
  const std::lock_guard lock(mutex_);
  has_come_ = true;
  time_ = std::chrono::steady_clock::now();
  came_.notify_all();
}

bool Moment::has_come() const {
  const std::lock_guard lock(mutex_);
  return has_come_;
}

void Moment::wait() const {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [this] { return has_come_; });
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
    given_.notify_one();
  }
  thread_.join();
}

void Queue::give(std::function<void()> work) { give(Task{std::move(work), nullptr}); }

void Queue::give(Task task) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(task));
  given_.notify_one();
}

std::shared_ptr<Moment> Queue::mark() {
  auto moment = std::make_shared<Moment>();
  give({[] {}, moment});
  return moment;
}

bool Queue::is_idle() const {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

void Queue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Task task = std::move(waiting_.front());
    lock.unlock();
    if (dice_() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    task.work();
    task.work = nullptr;  // what it holds may end here
    lock.lock();
    waiting_.pop_front();
    if (task.done) task.done->come();
  }
}

}  // namespace lockstep::pretend
