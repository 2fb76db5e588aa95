// How long something takes that has just been done before.
#pragma once

#include <chrono>

namespace lockstep::apps {

/// Seconds of `calls` calls of `run`, one after the other. Before them `run` is called once without being timed, so
/// that the caches hold what it needs, and then `line_up`, for the others who are to start at the same time.
template <typename Clock = std::chrono::steady_clock, typename Run, typename LineUp>
double warm_time(int calls, const Run& run, const LineUp& line_up) {
  run();
  line_up();
  const auto start = Clock::now();
  for (int call = 0; call < calls; ++call) run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace lockstep::apps
