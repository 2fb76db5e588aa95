// The threads of the local replicas.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace lockstep::inline v0::strategy {

/// One thread per local replica, kept for the whole run, so that thread-local settings and caches
/// of the kernels stay with their replica. Replica 0 computes on the thread that calls run(), so a
/// single replica needs no thread switch.
class ReplicaThreads {
 public:
  /// Called on the thread whose body threw, before waiting for the others, to wake them from a
  /// collective.
  using OnError = std::function<void(int replica, const std::string& reason)>;

  /// `budget`: kernel threads per replica (lockstep/base/system/host.h); also set for the calling
  /// thread. Throws Error (device) if the system cannot create the threads, including those of the
  /// kernels.
  ReplicaThreads(int replicas, int budget, OnError on_error = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Number of working threads, including the caller.
  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// Calls body(replica) on every replica's thread, and returns when all have finished. Rethrows
  /// the first error. Must always be called on the same thread.
  void run(const std::function<void(int replica)>& body);

 private:
  void stop();
  void work(int replica, int budget);
  void call(int replica) noexcept;
  void note_error(int replica);

  OnError on_error_;
  const std::function<void(int)>* body_ = nullptr;  // null: the threads must end
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> running_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::inline v0::strategy
