// The threads that local replicas compute on.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace lockstep::strategy {

/// One thread per local replica, kept for the whole run, so that thread-local settings and caches of the kernels stay
/// with their replica. Replica 0 computes on the thread that calls run(): with one replica there is no switch at all.
class ReplicaThreads {
 public:
  /// Called on the thread whose body threw, before the others are waited for: the chance to wake them from a
  /// collective.
  using OnError = std::function<void(int replica, const std::string& reason)>;

  /// `budget` threads for the kernels of each replica (lockstep/base/host.h); sets that of the calling thread as well.
  /// Throws Error (device) where the system does not give the threads, those of the kernels included.
  ReplicaThreads(int replicas, int budget, OnError on_error = {});
  ~ReplicaThreads();
  ReplicaThreads(const ReplicaThreads&) = delete;
  ReplicaThreads& operator=(const ReplicaThreads&) = delete;

  /// Threads that work, that of the caller included.
  int size() const { return static_cast<int>(threads_.size()) + 1; }

  /// body(replica) on every replica's thread; returns when all are done. Throws the first error in time. Always from
  /// the same thread.
  void run(const std::function<void(int replica)>& body);

 private:
  void stop();
  void work(int replica, int budget);
  void call(int replica) noexcept;
  void note_error(int replica);

  OnError on_error_;
  const std::function<void(int)>* body_ = nullptr;  // null asks the threads to end
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> running_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep::strategy
