#include "lockstep/allreduce/transport/transport.h"

#include <numeric>

namespace lockstep::inline v0::allreduce {

void Turn::leave(const void* owner, std::function<void()> work) {
  {
    const std::lock_guard lock(left_mutex_);
    left_.emplace_back(owner, std::move(work));
    has_left_.store(true, std::memory_order_release);
  }
  run_left_if_free();
}

void Turn::drop(const void* owner) {
  const std::lock_guard lock(left_mutex_);
  std::erase_if(left_, [&](const auto& one) { return one.first == owner; });
}

void Turn::run_left() {
  if (!has_left_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(left_mutex_);
  has_left_.store(false, std::memory_order_release);
  for (const auto& [owner, work] : left_) work();
  left_.clear();
}

void Turn::run_left_if_free() {
  if (!has_left_.load(std::memory_order_acquire)) return;
  const std::unique_lock free(mutex, std::try_to_lock);
  if (free.owns_lock()) run_left();
}

std::shared_ptr<Transport> Transport::duplicate() {
  std::vector<int> all(static_cast<std::size_t>(size()));
  std::iota(all.begin(), all.end(), 0);
  return subset(all);
}

}  // namespace lockstep::inline v0::allreduce
