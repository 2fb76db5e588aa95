// The scaling model: its formulas, and comparisons with published measurements.
#include "apps/lockstep/plan/scaling.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/apps/plan/calibrations.h"

namespace lockstep::inline v0::apps {
namespace {

TEST(Scaling, OfOneReplicaIsItsMeasuredStep) {
  Calibration calibration = plain_calibration();
  calibration.timings[2].input_seconds = 0.004;
  calibration.timings[2].activation_bytes = 3e6;
  const Prediction one = predict(calibration, {}, {.global_batch = 64}, 1);
  EXPECT_DOUBLE_EQ(one.step(), 0.068);
  EXPECT_DOUBLE_EQ(one.input, 0.004);
  EXPECT_DOUBLE_EQ(one.update, 0.00064);
  EXPECT_DOUBLE_EQ(one.samples_per_second, 64 / 0.068);
  EXPECT_EQ(one.efficiency, 1);
  EXPECT_EQ(one.memory_bytes, 19e6);
  EXPECT_TRUE(one.is_covered);
}

TEST(Scaling, IsLinearBetweenMeasuredBatches) {
  Calibration calibration = plain_calibration();
  EXPECT_DOUBLE_EQ(calibration.at(36).seconds, 0.036);
  EXPECT_DOUBLE_EQ(calibration.at(4).seconds, 0.008);
  EXPECT_DOUBLE_EQ(calibration.at(1024).seconds, 1.024);
  calibration.timings.back().deviation = 0.1;
  EXPECT_DOUBLE_EQ(calibration.at(288).deviation, 0.05);
  EXPECT_DOUBLE_EQ(calibration.at(1024).deviation, 0.2);  // beyond them in proportion
  EXPECT_TRUE(calibration.covers(512));
  EXPECT_FALSE(calibration.covers(513));
}

TEST(Scaling, OfASingleTimingIsProportionalExceptForTheUpdate) {
  const std::vector<ReadyParameter> parameters{{10, 0}};
  const Calibration calibration =
      calibration_with(parameters, {timing_with(100, 1, 0.6, parameters)});
  EXPECT_DOUBLE_EQ(calibration.at(50).seconds, 0.99 / 2 + 0.01);
}

// The bounds of docs/algorithms.md for 64 MiB over 1 Gbit/s.
TEST(Scaling, OfARingDependsOnBytesAndMessages) {
  const double bytes = 64 << 20;
  const Hardware hardware{.latency_seconds = 0};
  EXPECT_NEAR(reduction_seconds(bytes, 2, hardware), 0.562, 0.001);
  EXPECT_NEAR(reduction_seconds(bytes, 3, hardware), 0.749, 0.001);
  EXPECT_NEAR(reduction_seconds(bytes, 4, hardware), 0.843, 0.001);
  EXPECT_NEAR(reduction_seconds(bytes, 4, {.latency_seconds = 1e-3}), 0.849, 0.001);
  EXPECT_EQ(reduction_seconds(bytes, 1, hardware), 0);
}

TEST(Scaling, OfSmallBuffersIsThatOfRecursiveDoubling) {
  const Hardware hardware{.bits_per_second = 1e15, .latency_seconds = 1};
  EXPECT_NEAR(reduction_seconds(1024, 8, hardware), 3, 1e-6);
  EXPECT_NEAR(reduction_seconds(1024, 6, hardware), 4, 1e-6);
  EXPECT_NEAR(reduction_seconds(20'000, 8, hardware), 14, 1e-6);  // a ring
}

// Harter, 1961.
TEST(Scaling, ExpectsTheMaximumOfNormalVariables) {
  EXPECT_NEAR(expected_maximum(1), 0, 1e-4);
  EXPECT_NEAR(expected_maximum(2), 0.56419, 1e-4);
  EXPECT_NEAR(expected_maximum(3), 0.84628, 1e-4);
  EXPECT_NEAR(expected_maximum(4), 1.02938, 1e-4);
  EXPECT_NEAR(expected_maximum(10), 1.53875, 1e-4);
}

TEST(Scaling, HidesBucketsThatAreReadyEarly) {
  const Overlap hidden = overlap({{.ready = 4, .link = 3}, {.ready = 8, .link = 1}}, 10, false);
  EXPECT_EQ(hidden.exposed, 0);
  EXPECT_EQ(hidden.slowed, 0);
  // The second one waits for the first one.
  const Overlap waits = overlap({{.ready = 4, .link = 5}, {.ready = 5, .link = 2}}, 10, false);
  EXPECT_DOUBLE_EQ(waits.exposed, 1);
  const Overlap last = overlap({{.ready = 4, .link = 5}, {.ready = 10, .link = 2}}, 10, false);
  EXPECT_DOUBLE_EQ(last.exposed, 2);
}

TEST(Scaling, SlowsTheComputationByProcessorTimeOfSending) {
  const std::vector<SentBucket> buckets{{.ready = 2, .link = 4, .processor = 1}};
  const Overlap shared = overlap(buckets, 10, false);
  EXPECT_DOUBLE_EQ(shared.slowed, 1);
  EXPECT_DOUBLE_EQ(shared.exposed, 0);
  EXPECT_EQ(overlap(buckets, 10, true).slowed, 0);
  // A link that is faster than the core.
  EXPECT_DOUBLE_EQ(overlap({{.ready = 2, .link = 1, .processor = 3}}, 10, false).slowed, 3);
  EXPECT_DOUBLE_EQ(overlap({{.ready = 10, .link = 1, .processor = 3}}, 10, false).exposed, 3);
  EXPECT_DOUBLE_EQ(overlap({}, 10, false).exposed, 0);
}

TEST(Scaling, ReadsWhileTheReplicaWaits) {
  Calibration calibration = plain_calibration();
  for (BatchTiming& timing : calibration.timings) timing.input_seconds = 0.002;
  // 8 MB over 1 Gbit/s take tens of milliseconds.
  EXPECT_EQ(predict(calibration, {}, {.global_batch = 64}, 2).input, 0);
  EXPECT_GT(
      predict(calibration, {.bits_per_second = 1e13, .latency_seconds = 0}, {.global_batch = 64}, 2)
          .input,
      0.0015);
}

TEST(Scaling, WaitsForTheSlowestOfAllReplicas) {
  Calibration calibration = plain_calibration();
  for (BatchTiming& timing : calibration.timings) timing.deviation = 1e-3;
  EXPECT_EQ(predict(calibration, {}, {.global_batch = 64}, 1).waiting, 0);
  EXPECT_NEAR(predict(calibration, {}, {.global_batch = 64}, 4).waiting, 1.029e-3, 1e-6);
}

TEST(Scaling, OfAGrowingBatchKeepsThePerReplicaBatch) {
  const Prediction four = predict(plain_calibration(), {}, {.global_batch = 64, .weak = true}, 4);
  EXPECT_EQ(four.global_batch, 256);
  EXPECT_EQ(four.per_replica_batch, 64);
  EXPECT_DOUBLE_EQ(four.compute + four.update, 0.064);
}

TEST(Scaling, OnOneHostIsIndependentOfTheLink) {
  Calibration calibration = plain_calibration();
  calibration.bytes_per_second = 10e9;
  const Prediction two =
      predict(calibration, {.bits_per_second = 1, .replicas_per_host = 2}, {.global_batch = 64}, 2);
  EXPECT_EQ(two.hosts, 1);
  // Each reads and writes its 4 MB in the memory that both share.
  EXPECT_NEAR(two.communication, 2 * 2 * 4e6 / 10e9, 1e-6);
  const Prediction four = predict(calibration, {.replicas_per_host = 2}, {.global_batch = 64}, 4);
  EXPECT_EQ(four.hosts, 2);
  EXPECT_NEAR(four.link_seconds, 4e6 * 8 / 955e6 + 2 * 2 * 4e6 / 10e9 + 2 * 2 * 50e-6, 1e-4);
}

TEST(Scaling, CostsThePriceOfItsHosts) {
  const Prediction four = predict(plain_calibration(), {.replicas_per_host = 2, .price = 1.5},
                                  {.global_batch = 64, .samples = 3.6e6}, 4);
  EXPECT_DOUBLE_EQ(four.hours, 1000 / four.samples_per_second);
  EXPECT_DOUBLE_EQ(four.cost, four.hours * 2 * 1.5);
}

TEST(Scaling, OfFasterMachinesShortensOnlyTheComputation) {
  const Prediction plain = predict(plain_calibration(), {}, {.global_batch = 64}, 2);
  const Prediction fast = predict(plain_calibration(), {.speed = 4}, {.global_batch = 64}, 2);
  EXPECT_DOUBLE_EQ(fast.compute, plain.compute / 4);
  EXPECT_DOUBLE_EQ(fast.link_seconds, plain.link_seconds);
}

// docs/performance.md, "Overlap with the backward pass": convolutions, and a dense layer with
// nearly all parameters, on two hosts of one core with 1 Gbit/s.
TEST(Scaling, IsWithinTenPercentOfMeasurementsOnTwoHosts) {
  struct Case {
    std::int64_t batch;
    double compute;
    double forward;
    double measured;
  };
  for (const Case& one : {Case{192, 0.413, 0.1155, 0.461}, Case{128, 0.283, 0.077, 0.364}}) {
    const std::vector<ReadyParameter> parameters{{12'010, 0.99}, {7'527'600, 0.95}, {147'584, 0.7},
                                                 {73'856, 0.4},  {18'496, 0.1},     {320, 0}};
    Calibration calibration = calibration_with(
        parameters,
        {timing_with(one.batch, one.compute, 0.99 - one.forward / one.compute, parameters)});
    calibration.transfer_seconds_per_byte = 0.043 / 31.1e6;
    const Prediction two = predict(calibration, {}, {.global_batch = 2 * one.batch}, 2);
    EXPECT_NEAR(two.step(), one.measured, 0.1 * one.measured) << one.batch;
    EXPECT_NEAR(two.link_seconds, 0.261, 0.01 * 0.261);
  }
}

// Sergeev and Del Balso, 2018 (arXiv 1802.05799), and horovod/docs/benchmarks.rst: 128 servers of 4
// Pascal GPUs with 25 Gbit/s reach 90 % for Inception V3 and ResNet-101, 68 % for VGG-16, at 64
// images for each GPU. Unpublished values are assumed, the same for all three: rates of a single
// GPU as usual for a P100 (16 GPUs with ResNet-101: 104 images/s each), a backward pass of 65 % of
// the step, 10 us a message, and a deviation of 3 % between steps, with which the first two fit.
TEST(Scaling, IsWithinTenPercentOfHorovodOn512Gpus) {
  struct Case {
    const char* model;
    double images_per_second;
    double parameters;
    double published;
  };
  for (const Case& one :
       {Case{"Inception V3", 142, 23.8e6, 0.90}, Case{"ResNet-101", 110, 44.5e6, 0.90},
        Case{"VGG-16", 150, 138.3e6, 0.68}}) {
    std::vector<ReadyParameter> parameters;
    double rest = one.parameters;
    if (one.model == std::string("VGG-16"))  // its dense layers are first in the backward pass
      for (const double elements : {4.1e6, 16.8e6, 102.8e6}) {
        parameters.emplace_back(static_cast<std::int64_t>(elements), 0.97);
        rest -= elements;
      }
    constexpr int kLayers = 20;
    for (int layer = 0; layer < kLayers; ++layer)
      parameters.emplace_back(static_cast<std::int64_t>(rest / kLayers),
                              static_cast<double>(kLayers - 1 - layer) / kLayers);
    const double seconds = 64 / one.images_per_second;
    Calibration calibration =
        calibration_with(parameters, {timing_with(64, seconds, 0.65, parameters)});
    calibration.busy_cores = 0;  // GPUs
    calibration.timings[0].deviation = 0.03 * seconds;
    const Hardware hardware{.bits_per_second = 25e9,
                            .latency_seconds = 10e-6,
                            .replicas_per_host = 4,
                            .host_bytes_per_second = 48e9};
    const ScalingOptions options{
        .global_batch = 64,
        .weak = true,
        .buckets = {.first_bytes = std::size_t{64} << 20, .bytes = std::size_t{64} << 20}};
    const double efficiency = predict(calibration, hardware, options, 512).efficiency;
    EXPECT_NEAR(efficiency, one.published, 0.1 * one.published) << one.model;
  }
}

}  // namespace
}  // namespace lockstep::inline v0::apps
