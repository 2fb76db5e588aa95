#include "lockstep/job/failure_comparison.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "lockstep/allreduce/watchdog/progress.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"

namespace lockstep::inline v0::job {

using allreduce::RingReduction;

FailureComparison::FailureComparison(const Failure& mine, allreduce::Transport& ranks, double limit)
    : rank_(static_cast<std::size_t>(ranks.rank())),
      limit_(limit),
      all_(static_cast<std::size_t>(ranks.size())) {
  all_[rank_] = {std::hash<std::string>{}(mine.message), mine.exit_status,
                 mine.consequence ? 1 : 0};
  std::vector<allreduce::Slice> chunks;
  for (std::size_t rank = 0; rank < all_.size(); ++rank)
    chunks.push_back({rank * sizeof(Summary), (rank + 1) * sizeof(Summary)});
  exchange_.emplace(ranks,
                    allreduce::Values{reinterpret_cast<std::byte*>(all_.data()),
                                      all_.size() * sizeof(Summary), allreduce::ElementType::uint8},
                    allreduce::ReduceOp::sum, RingReduction::Part::all_gather,
                    allreduce::RingOptions{.segment_bytes = kCacheLine, .segments_in_flight = 1},
                    buffers_, chunks);
}

std::optional<FailureVerdict> FailureComparison::advance(double now) {
  try {
    while (exchange_ && exchange_->advance()) {
    }
  } catch (const Error&) {  // a rank is lost
    exchange_.reset();
  }
  if (exchange_ && exchange_->is_done()) return judge();
  if (exchange_ && now < limit_) return std::nullopt;
  return FailureVerdict{.exit_status = all_[rank_].exit_status};
}

FailureVerdict FailureComparison::judge() const {
  const auto cause = std::ranges::find(all_, 0, &Summary::consequence);
  const bool has_cause = cause != all_.end();
  const Summary& mine = all_[rank_];
  const auto is_alike = [&](const Summary& one) {
    return one.message_hash == mine.message_hash && one.consequence == mine.consequence;
  };
  const auto first_alike = std::ranges::find_if(all_, is_alike);
  FailureVerdict verdict;
  verdict.everyone_failed = true;
  verdict.all_alike = std::ranges::all_of(all_, is_alike);
  verdict.print = first_alike == all_.begin() + static_cast<std::ptrdiff_t>(rank_) &&
                  (mine.consequence == 0 || !has_cause);
  verdict.exit_status = has_cause ? cause->exit_status : all_.front().exit_status;
  return verdict;
}

FailureVerdict compare_failures(const Failure& mine, allreduce::Transport& ranks, double seconds) {
  // Time in which this rank got no processor counts little: on a busy host the others got none
  // either.
  constexpr double kLongestPause = 0.005;
  const auto start = std::chrono::steady_clock::now();
  allreduce::AwakeClock clock(0, kLongestPause);
  FailureComparison comparison(mine, ranks, seconds);
  for (;;) {
    if (const auto verdict = comparison.advance(clock.advance(seconds_since(start))))
      return *verdict;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace lockstep::inline v0::job
