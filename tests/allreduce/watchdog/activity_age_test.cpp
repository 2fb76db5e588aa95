#include "lockstep/allreduce/watchdog/progress.h"

#include <gtest/gtest.h>

namespace lockstep::inline v0::allreduce {
namespace {

TEST(ActivityAge, GrowsWhileNothingChanges) {
  const Activity activity;
  ActivityAge age;
  EXPECT_EQ(age.update(activity.state(), 10).still_seconds, 0);
  const ReplicaView view = age.update(activity.state(), 14);
  EXPECT_EQ(view.still_seconds, 4);
  EXPECT_EQ(view.collective_seconds, 4);
}

TEST(ActivityAge, TickIsProgressWithinACollective) {
  Activity activity;
  ActivityAge age;
  activity.enter("all_reduce", 0);
  age.update(activity.state(), 10);
  activity.tick();
  const ReplicaView view = age.update(activity.state(), 13);
  EXPECT_EQ(view.still_seconds, 0);
  EXPECT_EQ(view.collective_seconds, 3);
}

TEST(ActivityAge, DistinguishesProcessProgressFromReports) {
  const Activity activity;
  ActivityAge age;
  age.update(activity.state(), 10);
  const ReplicaView view = age.update(activity.state(), 14, /*process_made_progress=*/true);
  EXPECT_EQ(view.still_seconds, 0);
  EXPECT_EQ(view.unreported_seconds, 4);
  EXPECT_EQ(age.update(activity.state(), 15).still_seconds, 1);
}

TEST(ActivityAge, RestartsOnEnteringAndLeaving) {
  Activity activity;
  ActivityAge age;
  age.update(activity.state(), 0);
  activity.enter("all_reduce", 0);
  EXPECT_EQ(age.update(activity.state(), 5).collective_seconds, 0);
  EXPECT_EQ(age.update(activity.state(), 7).collective_seconds, 2);
  activity.leave();
  EXPECT_EQ(age.update(activity.state(), 9).collective_seconds, 0);
  EXPECT_EQ(age.update(activity.state(), 9.5).still_seconds, 0.5);
}

TEST(AwakeClock, ShortensPauses) {
  AwakeClock clock(1000, 3);
  EXPECT_EQ(clock.advance(1001), 1);
  EXPECT_EQ(clock.advance(1003.5), 3.5);
  EXPECT_EQ(clock.advance(5000), 6.5) << "a long pause counts as three seconds";
  EXPECT_EQ(clock.advance(5001), 7.5);
  EXPECT_EQ(clock.advance(5001), 7.5);
}

TEST(AwakeClock, ReportsARecentSuspension) {
  AwakeClock clock(0, 3);
  clock.advance(2);
  EXPECT_EQ(clock.recent_suspension(5), 0);
  clock.advance(102);
  EXPECT_EQ(clock.recent_suspension(5), 100);
  clock.advance(104);
  clock.advance(106);
  EXPECT_EQ(clock.recent_suspension(5), 100);
  clock.advance(107);
  EXPECT_EQ(clock.recent_suspension(5), 0);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
