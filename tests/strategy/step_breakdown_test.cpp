#include "lockstep/strategy/replica/step_breakdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/train/callbacks/step_interval.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kMs = 1e-3;
constexpr std::int64_t kJudgedSteps = 100;

/// A planted bottleneck, and its breakdown of a step of 10 to 1000 ms.
struct PlantedCause {
  const char* name;
  StepBreakdown step;                        // in ms
  std::vector<allreduce::BusySeconds> busy;  // in ms
  const char* bound_by;
  const char* text;  // a part of it
  TrainingFacts facts = {};
  int data_workers = 1;
  double processors = 0;  // mean number used by data threads; 0: unknown
  double queued_share = 0;
};

void PrintTo(const PlantedCause& cause, std::ostream* out) { *out << cause.name; }

std::optional<Verdict> verdict_on(const PlantedCause& cause, std::int64_t steps = kJudgedSteps) {
  const auto count = static_cast<double>(steps);
  StepSums sums{.steps = steps, .seconds = cause.step / (1 / (kMs * count))};
  sums.data_workers = cause.data_workers;
  sums.data_processor_seconds = cause.processors * sums.seconds.total();
  sums.queued_share = cause.queued_share;
  for (const allreduce::BusySeconds& busy : cause.busy)
    sums.busy.push_back(
        {busy.input * kMs * count, busy.compute * kMs * count, busy.processor * kMs * count});
  return judge(sums, cause.facts);
}

const TrainingFacts kTwo{.world_size = 2,
                         .per_replica_batch = 16,
                         .gradient_bytes = 900'000,
                         .names = {"rank 0", "rank 1"}};
const TrainingFacts kLarge{.world_size = 2,
                           .per_replica_batch = 512,
                           .gradient_bytes = 31'000'000,
                           .names = {"rank 0", "rank 1"}};
TrainingFacts with_processors(double processors) { return {.processors = processors}; }

class PlantedCauses : public ::testing::TestWithParam<PlantedCause> {};

TEST_P(PlantedCauses, AreNamedWithARemedy) {
  const auto verdict = verdict_on(GetParam());
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->bound_by, GetParam().bound_by);
  EXPECT_THAT(verdict->text, StartsWith("bound by " + verdict->bound_by + ": "));
  EXPECT_THAT(verdict->text, HasSubstr(GetParam().text));
  EXPECT_LE(verdict->text.size(), 79U) << verdict->text;
}

INSTANTIATE_TEST_SUITE_P(
    StepBreakdown, PlantedCauses,
    ::testing::Values(
        PlantedCause{"SlowReader",
                     {.input = 6, .compute = 3, .update = 1},
                     {},
                     "input",
                     "slow storage; --data-threads 3 would hide it",
                     with_processors(1),
                     1,
                     0.4},
        PlantedCause{"SlowDecode",
                     {.input = 6, .compute = 3, .update = 1},
                     {},
                     "input",
                     "2 more data threads would hide it (--data-threads 3)",
                     with_processors(4),
                     1,
                     0.95},
        PlantedCause{"SlowDecodeWithoutFreeCores",
                     {.input = 80, .compute = 20},
                     {},
                     "input",
                     "hiding it takes 5 processors, not 2; prepare the data once",
                     with_processors(2),
                     1,
                     0.95},
        PlantedCause{"SlowDecodeOnProcessorsThatOthersUse",
                     {.input = 80, .compute = 20},
                     {},
                     "input",
                     "data threads wait for busy processors; prepare the data once",
                     with_processors(2),
                     1,
                     0.4,
                     0.5},
        PlantedCause{"SlowReaderOnProcessorsThatOthersUse",
                     {.input = 80, .compute = 20},
                     {},
                     "input",
                     "slow storage; --data-threads 5 would hide it",
                     with_processors(2),
                     1,
                     0.2,
                     0.5},
        PlantedCause{"SlowDecodeByMoreThreadsThanCores",
                     {.input = 80, .compute = 20},
                     {},
                     "input",
                     "hiding it takes 5 processors, not 1; prepare the data once",
                     with_processors(1),
                     4,
                     1},
        PlantedCause{"SlowDecodeWithinAQuota",
                     {.input = 80, .compute = 20},
                     {},
                     "input",
                     "hiding it takes 3 processors, not 0.45; prepare the data once",
                     with_processors(0.45),
                     1,
                     0.45},
        PlantedCause{"NoReadingAhead",
                     {.input = 30, .compute = 70},
                     {},
                     "input",
                     "--prefetch",
                     with_processors(4),
                     0,
                     1},
        PlantedCause{"SlowReaderOfAllRanks",
                     {.input = 50, .compute = 50},
                     {{50, 50}, {49, 50}},
                     "input",
                     "slow storage; --data-threads 2",
                     kTwo,
                     1,
                     0.3},
        PlantedCause{"TinyBatch",
                     {.compute = 2, .communication = 3, .update = 0.5},
                     {{0, 2}, {0, 2}},
                     "communication",
                     "a per-replica batch of 256 would cut it to 10 %",
                     kTwo},
        PlantedCause{"BatchThatIsALittleSmall",
                     {.compute = 70, .communication = 20, .update = 5},
                     {{0, 70}, {0, 70}},
                     "communication",
                     "a per-replica batch of 2048 would cut it to 10 %",
                     kLarge},
        PlantedCause{"ThrottledLink",
                     {.compute = 10, .communication = 500, .update = 1},
                     {{0, 10}, {0, 10}},
                     "communication",
                     "--comm-dtype bfloat16 would halve 31.0 MB a step",
                     kLarge},
        PlantedCause{"SlowLinkForFewBytes",
                     {.compute = 1, .communication = 300},
                     {{0, 1}, {0, 1}},
                     "communication",
                     "0.9 MB take 300 ms; a faster link or fewer replicas",
                     kTwo},
        PlantedCause{"SlowRank",
                     {.compute = 50, .waiting = 150},
                     {{0, 50}, {0, 200}},
                     "straggler",
                     "rank 1 computes 200 ms, others 50.0 ms",
                     kTwo},
        PlantedCause{"SlowChief",
                     {.compute = 200, .communication = 1},
                     {{0, 200}, {0, 50}},
                     "straggler",
                     "rank 0 computes 200 ms",
                     kTwo},
        PlantedCause{"SharedCoreOfARank",
                     {.compute = 50, .waiting = 50},
                     {{0, 50, 50}, {0, 100, 52}},
                     "straggler",
                     "rank 1 has 52 % of a core, others 100 %: free its cores",
                     kTwo},
        PlantedCause{"SlowCoreOfARank",
                     {.compute = 60, .waiting = 40},
                     {{0, 60, 60}, {0, 100, 100}},
                     "straggler",
                     "rank 1 computes at 60 % of others: slow clock or memory",
                     kTwo},
        PlantedCause{"SlowCoreAmongSharedCores",
                     {.compute = 60, .waiting = 40},
                     {{0, 60, 31}, {0, 100, 50}, {0, 60, 60}, {0, 60, 30}},
                     "straggler",
                     "replica 1 computes at 60 % of others: slow clock or memory"},
        PlantedCause{"SlowReaderOfOneRank",
                     {.compute = 50, .waiting = 150},
                     {{0, 50}, {150, 50}},
                     "straggler",
                     "rank 1 waits 150 ms for its input, others 0 us",
                     kTwo},
        PlantedCause{"SlowReaderOfTheChief",
                     {.input = 150, .compute = 50},
                     {{150, 50}, {0, 50}},
                     "straggler",
                     "rank 0 waits 150 ms for its input",
                     kTwo},
        PlantedCause{"NoisyNeighbours",
                     {.compute = 50, .waiting = 25},
                     {{0, 50}, {0, 50}},
                     "straggler",
                     "replicas wait in turn; they share processors",
                     kTwo},
        PlantedCause{"SlowDiskAtCheckpoints",
                     {.compute = 40, .checkpoint = 60},
                     {},
                     "checkpoint",
                     "saving 29 times less often (--save-every) cuts it to 5 %"},
        PlantedCause{"MemoryBoundUpdate",
                     {.compute = 40, .update = 60},
                     {},
                     "memory",
                     "a per-replica batch of 256 would cut the update to 10 %",
                     {.per_replica_batch = 16}},
        PlantedCause{"UpdateOfAHugeModel",
                     {.compute = 5, .update = 95},
                     {},
                     "memory",
                     "sgd",
                     {.per_replica_batch = 512}},
        PlantedCause{"UpdateWithoutState",
                     {.compute = 5, .update = 95},
                     {},
                     "memory",
                     "the update takes 95 %; a larger batch makes it rarer",
                     {.per_replica_batch = 512, .has_optimizer_state = false}},
        PlantedCause{
            "NothingButComputation",
            {.input = 0.4, .compute = 9, .communication = 0.3, .waiting = 0.5, .update = 0.5},
            {{0, 9}, {0, 9}},
            "compute",
            "communication and waiting take 7 %",
            kTwo}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(Verdicts, RequireEnoughStepsAndTime) {
  const PlantedCause cause{"", {.input = 60, .compute = 40}, {}, "", ""};
  EXPECT_FALSE(verdict_on(cause, VerdictLimits::kLeastSteps - 1));
  EXPECT_TRUE(verdict_on(cause, VerdictLimits::kLeastSteps));
  EXPECT_FALSE(verdict_on({"", {.compute = 0.001}, {}, "", ""}, kJudgedSteps));
}

TEST(Verdicts, AreUnknownIfTheTimeIsElsewhere) {
  const auto verdict = verdict_on({"", {.input = 20, .compute = 40, .other = 40}, {}, "", ""});
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->bound_by, "");
  EXPECT_THAT(verdict->text,
              HasSubstr("40 % of the time is between steps: callbacks, or too short steps"));
}

TEST(Verdicts, IgnorePartsBelowTheirThresholds) {
  const auto bound_by = [](const StepBreakdown& step) {
    return verdict_on({"", step, {}, "", "", {.per_replica_batch = 16}})->bound_by;
  };
  EXPECT_EQ(bound_by({.input = 9.9, .compute = 90.1}), "compute");
  EXPECT_EQ(bound_by({.input = 10.1, .compute = 89.9}), "input");
  EXPECT_EQ(bound_by({.compute = 80.1, .update = 19.9}), "compute");
  EXPECT_EQ(bound_by({.compute = 79.9, .update = 20.1}), "memory");
  EXPECT_EQ(bound_by({.input = 11, .compute = 77, .checkpoint = 12}), "checkpoint");
}

TEST(StepBreakdownText, OmitsSmallParts) {
  const StepBreakdown step{.input = 0.1 * kMs,
                           .compute = 5.4 * kMs,
                           .communication = 0.2 * kMs,
                           .waiting = 0.3 * kMs,
                           .update = 0.1 * kMs};
  EXPECT_EQ(to_text(step, 100),
            "step 6.1 ms = input 0.1 + compute 5.4 + communication 0.2 + waiting 0.3 + update 0.1");
  EXPECT_EQ(to_text({.compute = 2.5, .other = 0.001}), "step 2.50 s = compute 2.50");
  EXPECT_EQ(to_text({.compute = 30e-6, .update = 5e-6}), "step 35 us = compute 30 + update 5");
}

TEST(StepBreakdownText, FitsAndStillAddsUp) {
  const StepBreakdown step{.input = 0.1 * kMs,
                           .compute = 5.4 * kMs,
                           .communication = 0.2 * kMs,
                           .waiting = 0.3 * kMs,
                           .update = 0.1 * kMs};
  EXPECT_EQ(to_text(step, 60), "step 6.1 ms = compute 5.4 + waiting 0.3 + other 0.4");
  EXPECT_EQ(to_text(step, 10), "step 6.1 m");
  for (std::size_t columns = 1; columns < 100; ++columns)
    EXPECT_LE(to_text(step, columns).size(), columns);
}

TEST(QueuedShare, IsAShare) {
  EXPECT_GE(queued_share(), 0);
  EXPECT_LT(queued_share(), 1);
  if (std::filesystem::exists("/proc/self/schedstat")) {
    // Several threads that compute on one processor wait for each other.
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&one](const std::stop_token& stop) {
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        while (!stop.stop_requested()) continue;
      });
    constexpr double kWaiting = 0.25;  // three of four wait
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    double share = 0;  // reused below, because a later value may be lower
    do share = queued_share();
    while (share < kWaiting && std::chrono::steady_clock::now() < end);
    EXPECT_GE(share, kWaiting);
  }
}

TEST(StepIntervals, ExcludeTheFirstStepOfARun) {
  TrainBegin begin;
  begin.first_step = 40;
  StepInterval interval;
  interval.begin(begin);
  const std::array<allreduce::BusySeconds, 1> busy{{{.input = 1, .compute = 2}}};
  interval.add(
      {.step = 41, .busy = busy, .breakdown = {.compute = 100}, .data_processor_seconds = 40});
  EXPECT_EQ(interval.steps(), 0);
  EXPECT_EQ(interval.mean(), StepBreakdown{});
  EXPECT_FALSE(interval.verdict());
  for (int step = 42; step < 52; ++step)
    interval.add({.step = step,
                  .busy = busy,
                  .breakdown = {.input = 1, .compute = 2},
                  .data_processor_seconds = 40.0 + 2 * (step - 41)});
  EXPECT_EQ(interval.steps(), 10);
  EXPECT_EQ(interval.mean(), (StepBreakdown{.input = 1, .compute = 2}));
  EXPECT_EQ(interval.sums().busy.front().compute, 20);
  EXPECT_EQ(interval.verdict()->bound_by, "input");
  EXPECT_EQ(interval.sums().data_processor_seconds, 20) << "since the first step";
  interval.restart();
  EXPECT_EQ(interval.steps(), 0);
  interval.add({.step = 52, .busy = busy, .data_processor_seconds = 64});
  EXPECT_EQ(interval.sums().data_processor_seconds, 4) << "since the last step before restart()";
}

TEST(StepClocks, CountSavingAndOmitExcludedTime) {
  StepClock clock;
  clock.begin();
  clock.add_checkpoint(2);
  clock.exclude(100);
  StepBreakdown step{.compute = 1};
  clock.end_step(step);
  EXPECT_EQ(step, (StepBreakdown{.compute = 1, .checkpoint = 2})) << "no time has passed";
  step = {.compute = 1};
  clock.end_step(step);
  EXPECT_EQ(step, (StepBreakdown{.compute = 1}));
  step = {};
  clock.end_step(step);
  EXPECT_GE(step.other, 0);
}

}  // namespace
}  // namespace lockstep::inline v0::train
