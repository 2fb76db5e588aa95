#include "allreduce/routes/barrier.h"

#include <thread>

#include "device/cpu.h"

namespace lockstep::allreduce {
namespace {

constexpr std::uint32_t kBroken = 1;
constexpr std::uint32_t kRound = 2;
constexpr int kLooksWithoutYield = 100;

// A sleeping thread takes some ten microseconds to wake, so it pays to stay awake about that long, as long as nobody
// needs the core. Where members share cores the one waited for may need ours.
std::chrono::microseconds patience_of(int members) {
  return std::chrono::microseconds(members <= device::available_cores() ? 50 : 2);
}

}  // namespace

Barrier::Barrier(int members) : members_(static_cast<std::uint32_t>(members)), patience_(patience_of(members)) {}

bool Barrier::arrive_and_wait() {
  const std::uint32_t seen = state_.load(std::memory_order_acquire);
  if ((seen & kBroken) != 0) return false;
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < members_) return wait_for_round_after(seen);
  arrived_.store(0, std::memory_order_relaxed);
  state_.fetch_add(kRound, std::memory_order_acq_rel);
  state_.notify_all();
  return true;
}

bool Barrier::wait_for_round_after(std::uint32_t seen) const {
  std::uint32_t now = state_.load(std::memory_order_acquire);
  for (int look = 0; now == seen && look < kLooksWithoutYield; ++look) now = state_.load(std::memory_order_acquire);
  if (now == seen) {
    const auto deadline = std::chrono::steady_clock::now() + patience_;
    while (now == seen && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
      now = state_.load(std::memory_order_acquire);
    }
  }
  while (now == seen) {
    state_.wait(seen, std::memory_order_acquire);
    now = state_.load(std::memory_order_acquire);
  }
  // A round that was completed counts, even if a member broke the barrier right after it.
  return (now & ~kBroken) != seen;
}

void Barrier::break_up() {
  state_.fetch_or(kBroken, std::memory_order_acq_rel);
  state_.notify_all();
}

bool Barrier::is_broken() const { return (state_.load(std::memory_order_acquire) & kBroken) != 0; }

}  // namespace lockstep::allreduce
