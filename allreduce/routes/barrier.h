// Threads wait for each other: briefly awake, then asleep, so that members may outnumber cores.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::allreduce {

/// A reusable barrier of a fixed number of threads that can be broken for good.
class Barrier {
 public:
  explicit Barrier(int members);

  /// True once every member has arrived, and everything they did before is visible. False if the barrier was broken:
  /// then they will never all arrive.
  [[nodiscard]] bool arrive_and_wait();

  /// Wakes all who wait, now and later. For a thread that has not arrived in this round.
  void break_up();
  bool is_broken() const;

 private:
  bool wait_for_round_after(std::uint32_t seen) const;

  const std::uint32_t members_;
  const std::chrono::microseconds patience_;  // how long to wait awake
  // Counts rounds in steps of kRound; the lowest bit says that the barrier is broken.
  alignas(64) std::atomic<std::uint32_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
};

}  // namespace lockstep::allreduce
