#include "lockstep/allreduce/activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::allreduce {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Activity, BeginsIdleBeforeTheFirstStep) {
  const Activity activity;
  const ActivityState state = activity.state();
  EXPECT_EQ(state.step, -1);
  EXPECT_EQ(state.phase, Phase::idle);
  EXPECT_FALSE(state.in_collective());
  EXPECT_EQ(state.operation, "");
  EXPECT_EQ(state.bucket, -1);
  EXPECT_EQ(state.changes, 0U);
}

TEST(Activity, ReportsTheCurrentCollective) {
  Activity activity;
  activity.set_step(7);
  activity.enter("all_reduce", 3);
  ActivityState state = activity.state();
  EXPECT_EQ(state.step, 7);
  EXPECT_TRUE(state.in_collective());
  EXPECT_EQ(state.operation, "all_reduce");
  EXPECT_EQ(state.bucket, 3);
  EXPECT_EQ(state.entered, 1U);

  activity.leave();
  state = activity.state();
  EXPECT_FALSE(state.in_collective());
  EXPECT_EQ(state.bucket, 3) << "that of the last collective";

  activity.enter("broadcast");
  EXPECT_EQ(activity.state().bucket, -1);
  EXPECT_EQ(activity.state().entered, 2U);
}

// Scopes may be nested, like an all_gather during the setup of the replicas.
TEST(CollectiveScope, IsASpanOfTheFlightRecorder) {
  Activity activity;
  trace::Collector collector;
  try {
    const CollectiveScope outer(&activity, "the set-up");
    { const CollectiveScope inner(&activity, "all_reduce", 3); }
    throw std::runtime_error("lost");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(activity.state().in_collective());
  }
  collector.collect();
  std::vector<std::string> events;
  for (const trace::ThreadEvents& thread : collector.threads())
    for (const trace::Event& event : thread.events)
      events.push_back(std::string(to_string(event.kind)) + " " + event.name + " " +
                       std::to_string(event.number) + " " + std::to_string(event.sequence));
  EXPECT_THAT(events, ElementsAre("begin the set-up -1 1", "begin all_reduce 3 2",
                                  "end all_reduce 3 2", "mark failed -1 1", "end the set-up -1 1"));
}

TEST(Activity, CountsEveryCallAsAChange) {
  Activity activity;
  std::uint64_t before = activity.state().changes;
  const auto changed = [&] {
    return std::exchange(before, activity.state().changes) != activity.state().changes;
  };
  activity.set_step(1);
  EXPECT_TRUE(changed());
  activity.set_phase(Phase::input);
  EXPECT_TRUE(changed());
  activity.tick();
  EXPECT_TRUE(changed());
  activity.enter("barrier");
  EXPECT_TRUE(changed());
  activity.leave();
  EXPECT_TRUE(changed());
  EXPECT_FALSE(changed());
}

TEST(Activity, EveryPhaseHasAName) {
  EXPECT_EQ(to_string(Phase::idle), "idle");
  EXPECT_EQ(to_string(Phase::starting), "starting");
  EXPECT_EQ(to_string(Phase::input), "input");
  EXPECT_EQ(to_string(Phase::compute), "compute");
  EXPECT_EQ(to_string(Phase::update), "update");
  EXPECT_EQ(to_string(Phase::evaluating), "evaluating");
  EXPECT_EQ(to_string(Phase::saving), "saving");
}

TEST(Activity, KeepsBucketContents) {
  Activity activity;
  EXPECT_THAT(activity.bucket_contents(), IsEmpty());
  activity.describe_buckets({"fc2 .. fc1", "conv2 .. conv1"});
  EXPECT_THAT(activity.bucket_contents(), ElementsAre("fc2 .. fc1", "conv2 .. conv1"));
}

TEST(CollectiveScope, LeavesOnAnException) {
  Activity activity;
  try {
    const CollectiveScope scope(&activity, "all_gather");
    EXPECT_TRUE(activity.state().in_collective());
    throw std::runtime_error("a peer is lost");
  } catch (const std::runtime_error&) {
    EXPECT_FALSE(activity.state().in_collective());
  }
}

TEST(PhaseScope, RestoresThePreviousPhase) {
  Activity activity;
  activity.set_phase(Phase::compute);
  {
    const PhaseScope scope(&activity, Phase::saving);
    EXPECT_EQ(activity.phase(), Phase::saving);
  }
  EXPECT_EQ(activity.phase(), Phase::compute);
}

/// The number of events that this process has recorded.
std::uint64_t recorded() {
  std::uint64_t events = 0;
  for (const trace::ThreadEvents& thread : trace::recorded_events()) events += thread.recorded;
  return events;
}

void enter_and_leave(Activity* activity) {
  const CollectiveScope collective(activity, "all_reduce", 1);
  const PhaseScope phase(activity, Phase::input);
}

TEST(Scopes, RecordNothingWithoutAnActivity) {
  Activity activity;
  const std::uint64_t before = recorded();
  enter_and_leave(nullptr);
  EXPECT_EQ(recorded(), before);
  enter_and_leave(&activity);
  EXPECT_EQ(recorded(), before + 4);
}

// One thread computes, one reduces, one ticks; a fourth one reads consistent snapshots.
TEST(Activity, SnapshotIsConsistentWhileThreadsWrite) {
  constexpr int kRounds = 20'000;
  Activity activity;
  std::atomic<bool> done{false};
  std::thread computes([&] {
    for (int step = 0; step < kRounds; ++step) {
      activity.set_step(step);
      activity.set_phase(step % 2 == 0 ? Phase::input : Phase::compute);
    }
  });
  std::thread ticks([&] {
    for (int i = 0; i < kRounds; ++i) activity.tick();
  });
  std::thread reduces([&] {
    for (int i = 0; i < kRounds; ++i) {
      const CollectiveScope scope(&activity, i % 2 == 0 ? "even" : "odd", i % 100);
    }
    done = true;
  });
  ActivityState last;
  while (!done) {
    const ActivityState state = activity.state();
    ASSERT_LE(state.entered - state.left, 1U);
    ASSERT_GE(state.entered, last.entered);
    ASSERT_GE(state.changes, last.changes);
    if (state.entered > 0) {
      ASSERT_EQ(state.operation, state.entered % 2 == 1 ? "even" : "odd");
      ASSERT_EQ(state.bucket, static_cast<int>((state.entered - 1) % 100));
    }
    last = state;
  }
  for (std::thread* thread : {&computes, &ticks, &reduces}) thread->join();
  EXPECT_EQ(activity.state().changes, 5U * kRounds);
}

}  // namespace
}  // namespace lockstep::inline v0::allreduce
