#include "allreduce/routes/backoff.h"

#include <algorithm>
#include <thread>

namespace lockstep::allreduce {
namespace {

using namespace std::chrono_literals;

constexpr int kLooksWithoutYield = 100;
// Replicas of a training step arrive within about this time of each other; a sleep, which takes far longer than it is
// told to, would cost them.
constexpr auto kYieldFor = 2ms;
constexpr auto kSleep = 50us;
constexpr auto kLongestSleep = 1000us;

}  // namespace

bool Backoff::pause() {
  if (looks_++ < kLooksWithoutYield) return false;
  const auto now = std::chrono::steady_clock::now();
  if (looks_ == kLooksWithoutYield + 1) begin_ = now;
  const auto waited = now - begin_;
  if (waited < kYieldFor)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(waited / 100, kSleep, kLongestSleep));
  return waited >= kYieldFor;
}

}  // namespace lockstep::allreduce
