#include "lockstep/strategy/replica/gradient_memory.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using Scalars = std::array<float, GradientMemory::kReport>;

TEST(StepReport, RoundTrips) {
  StepReport report;
  report.terminate = 1;
  Scalars step_scalars{};
  model::SummableMetrics(
      {.loss_sum = 123.456789012, .samples = 61, .correct = 40, .correct_top5 = 60})
      .write(step_scalars.data());
  report.write_signals(step_scalars);
  const StepReport read = StepReport::read(step_scalars);
  EXPECT_NEAR(read.metrics.loss_sum, 123.456789012, 1e-11);
  EXPECT_EQ(read.metrics.samples, 61);
  EXPECT_EQ(read.metrics.correct, 40);
  EXPECT_EQ(read.metrics.correct_top5, 60);
  EXPECT_EQ(read.non_finite, 0);
  EXPECT_EQ(read.terminate, 1);
  EXPECT_EQ(read.interrupt, 0);
  EXPECT_EQ(read.hangup, 0);
}

TEST(StepReport, AddsUpElementByElement) {
  Scalars sum{};
  for (int replica = 1; replica <= 3; ++replica) {
    Scalars mine{};
    model::SummableMetrics({.loss_sum = 0.1 * replica,
                            .samples = replica,
                            .correct = 1,
                            .correct_top5 = 1,
                            .weight_excess = 0.5})
        .write(mine.data());
    StepReport report;
    report.add_signal(replica == 2 ? SIGINT : replica == 3 ? SIGHUP : 0);
    report.write_signals(mine);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
  }
  const StepReport read = StepReport::read(sum);
  EXPECT_NEAR(read.metrics.loss_sum, 0.6, 1e-7);
  EXPECT_EQ(read.metrics.samples, 6);
  EXPECT_EQ(read.metrics.correct, 3);
  EXPECT_EQ(read.metrics.weight_sum(), 7.5);
  EXPECT_EQ(read.interrupt, 1);
  EXPECT_EQ(read.hangup, 1);
  EXPECT_EQ(read.terminate, 0);
}

TEST(StepReport, HasTheSignalThatEndsTheJob) {
  EXPECT_EQ(StepReport{}.signal(), 0);
  EXPECT_EQ(StepReport{.interrupt = 1}.signal(), SIGINT);
  EXPECT_EQ((StepReport{.terminate = 2, .interrupt = 1}.signal()), SIGTERM);
  EXPECT_EQ((StepReport{.interrupt = 1, .hangup = 1}.signal()), SIGINT);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    StepReport report;
    report.add_signal(signal);
    EXPECT_EQ(report.signal(), signal);
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
