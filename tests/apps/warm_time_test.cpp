#include "apps/lockstep/allreduce_bench/reduction_timing.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lockstep::inline v0::apps {
namespace {

// A clock that the test sets.
struct SetClock {
  using duration = std::chrono::seconds;
  using time_point = std::chrono::time_point<SetClock, duration>;

  static time_point now() { return time_point(duration(seconds)); }

  inline static int seconds = 0;
};

TEST(WarmTime, ExcludesFirstCallAndBarrier) {
  SetClock::seconds = 0;
  int runs = 0;
  int runs_when_lined_up = -1;
  const double seconds = warm_time<SetClock>(
      3, [&] { SetClock::seconds += runs++ == 0 ? 1000 : 2; },
      [&] {
        SetClock::seconds += 100;
        runs_when_lined_up = runs;
      });
  EXPECT_EQ(seconds, 6);
  EXPECT_EQ(runs, 4);
  EXPECT_EQ(runs_when_lined_up, 1);
}

}  // namespace
}  // namespace lockstep::inline v0::apps
