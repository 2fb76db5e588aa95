#include "lockstep/model/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model/support/error_of.h"

namespace lockstep::model {
namespace {

using ::testing::HasSubstr;

TEST(Schedule, ConstantIsThePeakForEver) {
  const Schedule schedule{.peak = 0.5f};
  EXPECT_EQ(schedule.rate(0), 0.5f);
  EXPECT_EQ(schedule.rate(1'000'000), 0.5f);
}

TEST(Schedule, WarmUpReachesThePeakWithItsLastStep) {
  const Schedule schedule{.peak = 1, .warmup_steps = 4};
  EXPECT_FLOAT_EQ(schedule.rate(0), 0.25f);
  EXPECT_FLOAT_EQ(schedule.rate(1), 0.5f);
  EXPECT_FLOAT_EQ(schedule.rate(3), 1);
  EXPECT_FLOAT_EQ(schedule.rate(4), 1);
}

TEST(Schedule, CosineFallsFromThePeakToTheFinalFraction) {
  const Schedule schedule{.kind = Schedule::Kind::cosine,
                          .peak = 2,
                          .warmup_steps = 10,
                          .total_steps = 110,
                          .final_fraction = 0.1f};
  EXPECT_FLOAT_EQ(schedule.rate(10), 2);
  EXPECT_FLOAT_EQ(schedule.rate(35), 2 * (0.1f + 0.9f * 0.853553391f));  // (1 + cos(pi / 4)) / 2
  EXPECT_FLOAT_EQ(schedule.rate(60), 2 * 0.55f);
  EXPECT_FLOAT_EQ(schedule.rate(110), 0.2f);
  EXPECT_FLOAT_EQ(schedule.rate(500), 0.2f) << "stays there beyond the end";
}

TEST(Schedule, LinearIsAStraightLine) {
  const Schedule schedule{
      .kind = Schedule::Kind::linear, .peak = 1, .warmup_steps = 2, .total_steps = 12};
  EXPECT_FLOAT_EQ(schedule.rate(2), 1);
  EXPECT_FLOAT_EQ(schedule.rate(7), 0.5f);
  EXPECT_FLOAT_EQ(schedule.rate(12), 0);
}

TEST(Schedule, StepDecaysAtMultiplesFromTheStartOfTraining) {
  const Schedule schedule{.kind = Schedule::Kind::step,
                          .peak = 1,
                          .warmup_steps = 5,
                          .step_every = 30,
                          .step_factor = 0.1f};
  EXPECT_FLOAT_EQ(schedule.rate(29), 1);
  EXPECT_FLOAT_EQ(schedule.rate(30), 0.1f);
  EXPECT_FLOAT_EQ(schedule.rate(59), 0.1f);
  EXPECT_FLOAT_EQ(schedule.rate(60), 0.01f);
}

TEST(Schedule, RefusesWhatAKindCannotDoWithout) {
  EXPECT_EQ(input_error_of([] {
              Schedule{.kind = Schedule::Kind::cosine, .warmup_steps = 5, .total_steps = 5}.check();
            }),
            "[cosine schedule] expected more total steps than warm-up steps, got 5 total steps and "
            "5 warm-up steps");
  EXPECT_THAT(input_error_of([] { Schedule{.kind = Schedule::Kind::linear}.rate(0); }),
              HasSubstr("[linear schedule]"));
  EXPECT_EQ(input_error_of([] { Schedule{.kind = Schedule::Kind::step}.check(); }),
            "[step schedule] expected a number of steps above 0 between decays, got 0");
  EXPECT_THAT(input_error_of([] { Schedule{.peak = -1}.check(); }),
              HasSubstr("expected a learning rate of 0 or more, got -1"));
  EXPECT_THAT(input_error_of([] { Schedule{.warmup_steps = -1}.check(); }),
              HasSubstr("expected 0 or more warm-up steps, got -1"));
  EXPECT_THAT(input_error_of([] { Schedule{.final_fraction = -1}.check(); }),
              HasSubstr("expected a final learning rate of 0 or more times the peak, got -1"));
  EXPECT_THAT(input_error_of([] { Schedule{.step_factor = -1}.check(); }),
              HasSubstr("expected a factor of 0 or more for each decay, got -1"));
}

TEST(Schedule, NamesGoBothWays) {
  for (const char* name : {"constant", "cosine", "step", "linear"})
    EXPECT_EQ(to_string(parse_schedule(name)), name);
  EXPECT_EQ(
      input_error_of([] { parse_schedule("cosin"); }),
      "[schedule] expected constant, cosine, step or linear, got \"cosin\" (did you mean cosine?)");
}

}  // namespace
}  // namespace lockstep::model
