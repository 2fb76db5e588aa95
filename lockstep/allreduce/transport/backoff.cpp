#include "lockstep/allreduce/transport/backoff.h"

#include <algorithm>
#include <thread>

namespace lockstep::inline v0::allreduce {
namespace {

using namespace std::chrono_literals;

constexpr int kPollsWithoutYield = 100;
// A network transfer takes longer than this, so the core is then left to other threads.
constexpr auto kMessageYield = 200us;
constexpr auto kSleep = 20us;
constexpr auto kLongestMessageSleep = 1000us;

}  // namespace

bool Backoff::pause() {
  if (polls_++ < kPollsWithoutYield) return false;
  const auto now = std::chrono::steady_clock::now();
  if (polls_ == kPollsWithoutYield + 1) begin_ = now;
  const auto waited = now - begin_;
  if (waited < kMessageYield)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(
        std::clamp<std::chrono::nanoseconds>(waited / 20, kSleep, kLongestMessageSleep));
  return waited >= kMessageYield;
}

}  // namespace lockstep::inline v0::allreduce
