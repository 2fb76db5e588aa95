#include "lockstep/allreduce/transport/backoff.h"

#include <algorithm>
#include <thread>

#include "lockstep/allreduce/transport/transport.h"

namespace lockstep::inline v0::allreduce {
namespace {

using namespace std::chrono_literals;

constexpr int kPollsWithoutYield = 100;
constexpr int kPollsInACrowd = 1;
// A network transfer takes longer than this, so the core is then left to other threads.
constexpr auto kMessageYield = 200us;
constexpr auto kSleep = 20us;
constexpr auto kLongestMessageSleep = 1000us;

}  // namespace

bool Backoff::pause() {
  const int polls = shares_cores_ ? kPollsInACrowd : kPollsWithoutYield;
  if (polls_++ < polls) return false;
  const auto now = std::chrono::steady_clock::now();
  if (polls_ == polls + 1) begin_ = now;
  const auto waited = now - begin_;
  const bool is_long = waited >= kMessageYield;
  if (!is_long && !shares_cores_) {
    std::this_thread::yield();
  } else if (!transport_ || !transport_->sleep(kLongestMessageSleep)) {
    std::this_thread::sleep_for(
        std::clamp<std::chrono::nanoseconds>(waited / 20, kSleep, kLongestMessageSleep));
  }
  return is_long;
}

}  // namespace lockstep::inline v0::allreduce
