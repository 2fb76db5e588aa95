// Measurements of a training on one machine: their structure, not their values.
#include "apps/lockstep/plan/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/plan/scaling_plan.h"
#include "lockstep/base/error.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::apps {
namespace {

using ::testing::ElementsAre;

TEST(Calibrate, MeasuresTheBatchesOfPowersOfTwo) {
  EXPECT_THAT(batches_to_measure(256, 8, false), ElementsAre(32, 64, 128, 256));
  EXPECT_THAT(batches_to_measure(256, 6, false), ElementsAre(32, 64, 128, 256));
  EXPECT_THAT(batches_to_measure(10, 64, false), ElementsAre(1, 2, 3, 5, 10));
  EXPECT_THAT(batches_to_measure(64, 1, false), ElementsAre(64));
  EXPECT_THAT(batches_to_measure(64, 64, true), ElementsAre(32, 64));
}

class Calibrated : public ::testing::Test {
 protected:
  Calibration calibrate_with(const strategy::TrainerOptions& options,
                             std::vector<std::int64_t> batches) {
    train::Trainer trainer(strategy_, train::plain_network(), options);
    const std::uint64_t before = trainer.parameter_hash();
    const Calibration calibration =
        calibrate(trainer, train::small_data().shuffle(),
                  {.batches = std::move(batches),
                   .seconds = 0,
                   .progress = [this](std::size_t number, std::int64_t samples) {
                     progress_.push_back(std::to_string(number) + ":" + std::to_string(samples));
                   }});
    EXPECT_EQ(trainer.parameter_hash(), before);
    return calibration;
  }

  job::Session session_{0, nullptr};
  strategy::OneDeviceStrategy strategy_{session_};
  std::vector<std::string> progress_;
};

TEST_F(Calibrated, HasATimingForEachBatch) {
  const Calibration calibration = calibrate_with({}, {40, 10, 1000});
  ASSERT_EQ(calibration.timings.size(), 3U);
  EXPECT_EQ(calibration.timings[0].samples, 10);
  EXPECT_EQ(calibration.timings[1].samples, 40);
  EXPECT_EQ(calibration.timings[2].samples, 203);  // all records
  EXPECT_THAT(progress_, ElementsAre("0:10", "1:40", "2:203"));
  for (const BatchTiming& timing : calibration.timings) {
    EXPECT_GT(timing.seconds, 0);
    EXPECT_GT(timing.update_seconds, 0);
    EXPECT_GE(timing.seconds, timing.update_seconds);
    EXPECT_GT(timing.activation_bytes, 0);
    ASSERT_EQ(timing.lead_seconds.size(), 4U);
    // The last layer's gradients are the first ones.
    EXPECT_GT(timing.lead_seconds.front(), timing.lead_seconds.back());
  }
  EXPECT_GT(calibration.cores, 0);
  EXPECT_GT(calibration.transfer_seconds_per_byte, 0);
  EXPECT_GT(calibration.flop_per_second, 0);
}

TEST_F(Calibrated, DescribesTheTraining) {
  const Calibration calibration = calibrate_with({.optimizer = model::Adam{}}, {40});
  EXPECT_EQ(calibration.model, "plain");
  EXPECT_EQ(calibration.records, 203);
  std::int64_t elements = 0;
  for (const std::int64_t count : calibration.elements) elements += count;
  EXPECT_EQ(elements, 16 * 12 + 12 + 12 * 4 + 4);
  EXPECT_GE(calibration.parameter_bytes, 4.0 * static_cast<double>(elements));
  EXPECT_GE(calibration.slot_bytes, 2 * 4.0 * static_cast<double>(elements));
}

TEST_F(Calibrated, MeasuresMicroBatches) {
  const Calibration calibration = calibrate_with({.accumulate = 3}, {40});
  EXPECT_EQ(calibration.timings.front().lead_seconds.size(), 4U);
}

TEST_F(Calibrated, SupportsPlanning) {
  const Calibration calibration = calibrate_with({}, {10, 40});
  const std::vector<int> replicas{1, 4};
  const ScalingPlan plan = plan_scaling(calibration, {}, {.global_batch = 40}, replicas);
  ASSERT_EQ(plan.rows.size(), 2U);
  EXPECT_GT(plan.rows[1].communication, 0);
  EXPECT_TRUE(plan.rows[1].is_covered);
}

TEST(Calibrate, RequiresASingleReplica) {
  job::Session session(0, nullptr);
  strategy::MirroredStrategy strategy(session, std::vector<device::Device>(2));
  train::Trainer trainer(strategy, train::plain_network());
  try {
    calibrate(trainer, train::small_data(), {.batches = {40}, .seconds = 0});
    FAIL() << "an error was expected";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[plan] expected one replica to calibrate with, got 2");
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
