#include "lockstep/job/launch/start_monitor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

namespace lockstep::inline v0::job {
namespace {

TEST(RunningTime, CountsTheTimeBetweenReadings) {
  RunningTime time(100, 1);
  EXPECT_EQ(time.advance(100.5, true), 0.5);
  EXPECT_EQ(time.advance(101, true), 1);
}

TEST(RunningTime, CountsNoTimeInWhichTheProcessWasStopped) {
  RunningTime time(0, 1);
  EXPECT_EQ(time.advance(0.5, true), 0.5);
  EXPECT_EQ(time.advance(3600, true), 1.5) << "at most the longest pause";
  EXPECT_EQ(time.advance(3600.5, true), 2);
}

TEST(RunningTime, CountsNoTimeUnderADebugger) {
  RunningTime time(0, 1);
  for (int reading = 1; reading <= 1000; ++reading) EXPECT_EQ(time.advance(reading, false), 0);
  EXPECT_EQ(time.advance(1000.5, true), 0.5);
}

constexpr StartCall kCall{.name = "MPI_Comm_dup", .advice = "look at the other ranks"};

[[noreturn]] void wait() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(StartMonitor, EndsTheProcessAndNamesTheCall) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        StartMonitor monitor;
        monitor.watch(0.3);
        monitor.enter(kCall);
        wait();
      },
      ::testing::ExitedWithCode(4),
      "lockstep: error: \\[start\\] expected MPI_Comm_dup to return within 0.3 s; rank 0, host .*, "
      "is waiting: look at the other ranks\n");
}

TEST(StartMonitor, NamesTheRankOfTheLauncher) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("PMI_RANK", "3", 1);
        ::setenv("PMI_SIZE", "4", 1);
        StartMonitor monitor;
        monitor.enter(kCall);
        monitor.watch(0.3);
        wait();
      },
      ::testing::ExitedWithCode(4), "; rank 3, host ");
}

TEST(StartMonitor, IsDestroyedWhileItWatches) {
  StartMonitor monitor;
  monitor.watch(1000);
  monitor.enter(kCall);
}

}  // namespace
}  // namespace lockstep::inline v0::job
