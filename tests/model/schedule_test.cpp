#include "lockstep/model/optimizer/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/model/support/error_of.h"
#include "tests/model/support/reference_file.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::HasSubstr;

TEST(Schedule, ConstantIsAlwaysThePeak) {
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

// Each from its first update, without a warm-up; scripts/make_reference wrote the file.
TEST(Schedule, MatchesPyTorch) {
  const ReferenceFile reference("optimizers");
  const Schedule schedule{.peak = 1,
                          .total_steps = 20,
                          .final_fraction = 0,
                          .step_every = 6,
                          .step_factor = 0.5f,
                          .power = 2};
  for (const std::string name :
       {"cosine", "linear", "step", "polynomial", "exponential", "one-cycle"}) {
    Schedule named = schedule;
    named.kind = parse_name<Schedule::Kind>("lr-schedule", name);
    if (name == "cosine" || name == "linear") named.final_fraction = 0.1f;
    std::int64_t step = 0;
    for (const float rate : reference.array("schedule/" + name).values)
      EXPECT_NEAR(named.rate(step++), rate, 1e-6) << name << " " << step;
    EXPECT_GE(step, 20);
  }
}

// torch.optim.lr_scheduler.OneCycleLR(optimizer, 1.0, 100), and (…, 1.0, 10, pct_start=0.2), of
// PyTorch 2.15: get_last_lr() before each step.
TEST(Schedule, OneCycleMatchesPyTorch) {
  Schedule schedule{.kind = Schedule::Kind::one_cycle, .peak = 1, .total_steps = 100};
  for (const auto& [step, rate] : {std::pair(0, 0.04f),
                                   {10, 0.295163948f},
                                   {29, 1.0f},
                                   {30, 0.999496535f},
                                   {50, 0.793893451f},
                                   {99, 4e-6f}})
    EXPECT_FLOAT_EQ(schedule.rate(step), rate) << step;
  EXPECT_FLOAT_EQ(schedule.rate(500), 4e-6f) << "stays there beyond the end";
  schedule.total_steps = 10;
  schedule.warmup_steps = 2;
  for (const auto& [step, rate] : {std::pair(0, 0.04f),
                                   {1, 1.0f},
                                   {2, 0.961939918f},
                                   {3, 0.853553976f},
                                   {5, 0.500002f},
                                   {9, 4e-6f}})
    EXPECT_FLOAT_EQ(schedule.rate(step), rate) << step;
  schedule.warmup_steps = 0;
  schedule.total_steps = 1;
  EXPECT_TRUE(schedule.rate(0) > 0 && schedule.rate(0) <= 1) << "has no rising part";
}

// torch.optim.lr_scheduler.PolynomialLR(optimizer, 10, power=2), after 4 steps at the peak.
TEST(Schedule, PolynomialMatchesPyTorch) {
  Schedule schedule{.kind = Schedule::Kind::polynomial,
                    .peak = 1,
                    .warmup_steps = 4,
                    .total_steps = 14,
                    .power = 2};
  for (const auto& [step, rate] :
       {std::pair(4, 1.0f), {5, 0.81f}, {7, 0.49f}, {13, 0.01f}, {14, 0.0f}, {20, 0.0f}})
    EXPECT_FLOAT_EQ(schedule.rate(step), rate) << step;
  schedule.final_fraction = 0.5f;  // Keras: (initial - end) * 0.49 + end
  EXPECT_FLOAT_EQ(schedule.rate(7), 0.745f);
}

// keras.optimizers.schedules.ExponentialDecay(2, 10, 0.5), which begins after the warm-up.
TEST(Schedule, ExponentialDecaysSmoothly) {
  const Schedule schedule{.kind = Schedule::Kind::exponential,
                          .peak = 2,
                          .warmup_steps = 5,
                          .step_every = 10,
                          .step_factor = 0.5f};
  EXPECT_FLOAT_EQ(schedule.rate(4), 2);
  EXPECT_FLOAT_EQ(schedule.rate(5), 2);
  EXPECT_FLOAT_EQ(schedule.rate(15), 1);
  EXPECT_FLOAT_EQ(schedule.rate(20), 0.707106781f);
}

// Vaswani et al., equation 3, counts steps from 1: 8^-0.5 * min(n^-0.5, n * 4^-1.5) is the rate of
// step n - 1 for a peak of 8^-0.5 * 4^-0.5.
TEST(Schedule, InverseSquareRootFollowsTheWarmUp) {
  const Schedule schedule{.kind = Schedule::Kind::inverse_sqrt,
                          .peak = static_cast<float>(1 / std::sqrt(32.0)),
                          .warmup_steps = 4};
  for (const int n : {1, 2, 4, 5, 16, 1000})
    EXPECT_FLOAT_EQ(schedule.rate(n - 1),
                    static_cast<float>(std::min(1 / std::sqrt(n), n / 8.0) / std::sqrt(8.0)))
        << n;
}

TEST(Schedule, RequiresTheOptionsOfItsKind) {
  EXPECT_EQ(input_error_of([] {
              Schedule{.kind = Schedule::Kind::cosine, .warmup_steps = 5, .total_steps = 5}.check();
            }),
            "[cosine schedule] expected more total steps than warm-up steps, got 5 total steps and "
            "5 warm-up steps");
  EXPECT_THAT(input_error_of([] { Schedule{.kind = Schedule::Kind::linear}.rate(0); }),
              HasSubstr("[linear schedule]"));
  EXPECT_EQ(input_error_of([] { Schedule{.kind = Schedule::Kind::step}.check(); }),
            "[step schedule] expected a number of steps above 0 between decays, got 0");
  EXPECT_EQ(input_error_of([] { Schedule{.kind = Schedule::Kind::exponential}.check(); }),
            "[exponential schedule] expected a number of steps above 0 between decays, got 0");
  EXPECT_EQ(input_error_of([] { Schedule{.kind = Schedule::Kind::inverse_sqrt}.check(); }),
            "[inverse-sqrt schedule] expected warm-up steps, on which the decay depends, got 0");
  for (const Schedule::Kind kind : {Schedule::Kind::polynomial, Schedule::Kind::one_cycle})
    EXPECT_THAT(input_error_of([&] { Schedule{.kind = kind}.check(); }),
                HasSubstr("expected more total steps than warm-up steps"));
  EXPECT_THAT(input_error_of([] { Schedule{.power = 0}.check(); }),
              HasSubstr("expected a power above 0, got 0"));
  EXPECT_THAT(input_error_of([] { Schedule{.peak = -1}.check(); }),
              HasSubstr("expected a learning rate of 0 or more, got -1"));
  EXPECT_THAT(input_error_of([] { Schedule{.warmup_steps = -1}.check(); }),
              HasSubstr("expected 0 or more warm-up steps, got -1"));
  EXPECT_THAT(input_error_of([] { Schedule{.final_fraction = -1}.check(); }),
              HasSubstr("expected a final learning rate of 0 or more times the peak, got -1"));
  EXPECT_THAT(input_error_of([] { Schedule{.step_factor = -1}.check(); }),
              HasSubstr("expected a factor of 0 or more for each decay, got -1"));
}

TEST(Schedule, NamesRoundTrip) {
  for (const char* name : {"constant", "cosine", "step", "linear", "polynomial", "exponential",
                           "inverse-sqrt", "one-cycle"})
    EXPECT_EQ(to_string(parse_name<Schedule::Kind>("lr-schedule", name)), name);
  EXPECT_EQ(input_error_of([] { parse_name<Schedule::Kind>("lr-schedule", "cosin"); }),
            "[lr-schedule] expected constant, cosine, step, linear, polynomial, exponential, "
            "inverse-sqrt or "
            "one-cycle, got \"cosin\" (did you mean cosine?)");
}

}  // namespace
}  // namespace lockstep::inline v0::model
