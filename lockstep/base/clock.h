// Elapsed time, processor time and time of day.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>

namespace lockstep::inline v0 {

/// Seconds since `start`.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Processor time used so far, in seconds, by this process (CLOCK_PROCESS_CPUTIME_ID) or by the
/// calling thread (CLOCK_THREAD_CPUTIME_ID); 0 if unknown.
inline double processor_seconds(clockid_t clock) {
  timespec time{};
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Calls `work` once to warm up, then repeatedly for `seconds`, at least three times. Returns the
/// shortest time of a call, which excludes most disturbances.
template <typename Work>
double shortest_seconds(double seconds, Work work) {
  constexpr int kMinCalls = 3;
  work();
  double best = std::numeric_limits<double>::max();
  const auto begin = std::chrono::steady_clock::now();
  for (int round = 0; round < kMinCalls || seconds_since(begin) < seconds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

/// Seconds since 1970, UTC.
inline double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace lockstep::inline v0
