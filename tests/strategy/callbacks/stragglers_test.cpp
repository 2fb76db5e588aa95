#include "lockstep/train/callbacks/stragglers.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "lockstep/base/system/host.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns the standard error of `steps` steps with these times, two per log interval.
std::string warnings_of(const std::array<allreduce::BusySeconds, 3>& busy, int steps) {
  ::testing::internal::CaptureStderr();
  {
    job::Session session(0, nullptr);
    const auto strategy = local_strategy(session, 3);
    Stragglers stragglers(*strategy, 2);
    for (int step = 1; step <= steps; ++step) stragglers.on_batch_end({.step = step, .busy = busy});
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(Stragglers, NamesTheSlowReplicaAndItsDelay) {
  const std::string warnings = warnings_of(
      {{{.input = 0.001, .compute = 0.012}, {.compute = 0.212}, {.compute = 0.012}}}, 2);
  EXPECT_THAT(warnings,
              AllOf(HasSubstr("step 2: "), HasSubstr("replica 1 (rank 0, host " + host_name()),
                    HasSubstr("compute takes 212 ms per step, the median is 12 ms"),
                    Not(HasSubstr("replica 0")), Not(HasSubstr("replica 2"))));
}

TEST(Stragglers, DistinguishesInputFromComputation) {
  EXPECT_THAT(
      warnings_of({{{.compute = 0.01}, {.compute = 0.01}, {.input = 0.1, .compute = 0.01}}}, 2),
      AllOf(HasSubstr("replica 2"), HasSubstr("input takes 100 ms")));
}

TEST(Stragglers, IsSilentForEqualReplicasAndWithinAnInterval) {
  EXPECT_THAT(warnings_of({{{.compute = 0.010}, {.compute = 0.0105}, {.compute = 0.0099}}}, 10),
              IsEmpty());
  EXPECT_THAT(warnings_of({{{.compute = 0.012}, {.compute = 0.212}, {.compute = 0.012}}}, 1),
              IsEmpty());
}

TEST(Stragglers, RequireEnoughSteps) {
  EXPECT_EQ(Stragglers::interval(0), 100);
  EXPECT_EQ(Stragglers::interval(1), 100);
  EXPECT_EQ(Stragglers::interval(250), 250);
}

TEST(Stragglers, IgnoreAShortIntervalAfterAResume) {
  const std::array<allreduce::BusySeconds, 2> slow{{{.compute = 0.01}, {.compute = 0.2}}};
  job::Session session(0, nullptr);
  const auto strategy = local_strategy(session, 2);
  Stragglers stragglers(*strategy, 10);
  TrainBegin begin;
  begin.first_step = 45;
  ::testing::internal::CaptureStderr();
  stragglers.on_train_begin(begin);
  for (int step = 46; step <= 60; ++step) stragglers.on_batch_end({.step = step, .busy = slow});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(Not(HasSubstr("step 50: ")), HasSubstr("step 60: replica 1 ")));
}

TEST(Stragglers, IgnoreTheFirstStepOfATraining) {
  const std::array<allreduce::BusySeconds, 2> slow{{{.compute = 0.01}, {.compute = 0.2}}};
  const std::array<allreduce::BusySeconds, 2> equal{{{.compute = 0.01}, {.compute = 0.01}}};
  job::Session session(0, nullptr);
  const auto strategy = local_strategy(session, 2);
  Stragglers stragglers(*strategy, 1);
  TrainBegin begin;
  begin.first_step = 40;
  ::testing::internal::CaptureStderr();
  stragglers.on_train_begin(begin);
  stragglers.on_batch_end({.step = 41, .busy = slow});
  stragglers.on_batch_end({.step = 42, .busy = equal});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::inline v0::train
