#include "lockstep/strategy/trainer_options.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"

namespace lockstep::strategy {
namespace {

using allreduce::error_of;

TEST(TrainerOptions, ScaleTheRateWithTheBatch) {
  TrainerOptions options;
  options.schedule.peak = 0.1F;
  options.base_batch = 64;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.1F);
  options.rate_scaling = RateScaling::linear;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.4F);
  options.rate_scaling = RateScaling::sqrt;
  EXPECT_FLOAT_EQ(effective_schedule(options, 256, 10).rate(0), 0.2F);
  EXPECT_EQ(effective_schedule(options, 256, 10).total_steps, 10);
}

TEST(TrainerOptions, NameTheWaysToScaleTheRate) {
  EXPECT_EQ(parse_rate_scaling("sqrt"), RateScaling::sqrt);
  EXPECT_EQ(error_of([] { parse_rate_scaling("cubic"); }), "[lr-scaling] expected none, linear or sqrt, got \"cubic\"");
}

}  // namespace
}  // namespace lockstep::strategy
