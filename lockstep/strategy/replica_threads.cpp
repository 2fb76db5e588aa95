#include "lockstep/strategy/replica_threads.h"

#include <mutex>
#include <string>
#include <utility>

#include "lockstep/base/system/host.h"
#include "lockstep/base/system/process.h"
#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::strategy {
namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown exception";
  }
}

}  // namespace

ReplicaThreads::ReplicaThreads(int replicas, int budget, OnError on_error) {
  set_thread_budget(budget);
  try {
    for (int replica = 1; replica < replicas; ++replica)
      threads_.push_back(
          start_thread("a replica", [this, replica, budget] { work(replica, budget); }));
    std::mutex one_at_a_time;
    run([&](int /*replica*/) {
      const std::lock_guard lock(one_at_a_time);
      start_kernel_threads();
    });
  } catch (...) {
    stop();
    throw;
  }
  on_error_ = std::move(on_error);  // before construction ends, no replica is in a collective
}

ReplicaThreads::~ReplicaThreads() { stop(); }

void ReplicaThreads::stop() {
  body_ = nullptr;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::run(const std::function<void(int)>& body) {
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  body_ = &body;
  if (!threads_.empty()) {
    running_.store(static_cast<std::uint32_t>(threads_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  call(0);
  while (const std::uint32_t left = running_.load(std::memory_order_acquire))
    running_.wait(left, std::memory_order_acquire);
  if (error_) std::rethrow_exception(error_);
}

void ReplicaThreads::work(int replica, int budget) {
  trace::name_thread("replica", replica);
  set_thread_budget(budget);
  for (std::uint32_t seen = 0;;) {
    round_.wait(seen, std::memory_order_acquire);
    seen = round_.load(std::memory_order_acquire);
    if (body_ == nullptr) return;
    call(replica);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
  }
}

void ReplicaThreads::call(int replica) noexcept {
  try {
    (*body_)(replica);
  } catch (...) {
    note_error(replica);
  }
}

void ReplicaThreads::note_error(int replica) {
  if (failed_.exchange(true, std::memory_order_acq_rel))
    return;  // a later error is most likely a consequence of the first one
  error_ = std::current_exception();
  if (on_error_) on_error_(replica, message_of(error_));
}

}  // namespace lockstep::inline v0::strategy
