#include "lockstep/model/layer/step_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "lockstep/model/compiled/device_speed.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::int64_t kProfiledSamples = 6;

/// A profile of one step after those that are not measured.
Profile profile_of(Network network, double input_seconds = 0, std::int64_t micro_batches = 1,
                   const DeviceSpeed& speed = {}) {
  Trial trial(std::move(network), kProfiledSamples);
  StepProfile profile(trial.model().backend().stream());
  for (int step = 0; step <= StepProfile::kWarmUpSteps; ++step) {
    const bool is_timed = profile.begin_step(kProfiledSamples, input_seconds);
    EXPECT_EQ(is_timed, step == StepProfile::kWarmUpSteps);
    for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
      if (is_timed) profile.end("input", {});
      trial.train({.profile = is_timed ? &profile : nullptr});
    }
    if (is_timed) profile.end_step();
  }
  return profile.result(speed);
}

std::vector<std::string> piece_names(const Profile& profile) {
  std::vector<std::string> names;
  for (const ProfiledPiece& piece : profile.pieces) names.push_back(piece.name);
  return names;
}

/// Bytes and FLOP by name.
std::map<std::string, std::pair<std::int64_t, std::int64_t>> work_in(const Profile& profile) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> works;
  for (const auto& [name, milliseconds, work, floor] : profile.pieces)
    works[name] = {work.bytes, work.flop};
  return works;
}

Network two_products() {
  Network network({7});
  network.add(Dense({.units = 5}));
  network.add(ReLU());
  network.add(Dense({.units = 3, .use_bias = false}));
  return network;
}

TEST(StepProfile, HasThePiecesOfAStepInTheOrderOfExecution) {
  const Profile profile = profile_of(two_products());
  EXPECT_THAT(piece_names(profile), ElementsAre("input", "dense forward", "dense_1 forward", "loss",
                                                "dense_1 weight gradient", "dense_1 data gradient",
                                                "dense weight gradient"));
  EXPECT_EQ(profile.steps, 1);
  EXPECT_EQ(profile.samples, kProfiledSamples);
  double sum = 0;
  for (const ProfiledPiece& piece : profile.pieces) {
    EXPECT_GT(piece.milliseconds, 0) << piece.name;
    sum += piece.milliseconds;
  }
  // In one step, no piece is counted twice.
  EXPECT_LE(sum, profile.step.milliseconds * (1 + 1e-9));
}

// The first product: x [6, 7], kernel [5, 7], bias [5], y [6, 5], whose ReLU is part of it.
TEST(StepProfile, CountsBytesAndOperationsOfAProduct) {
  constexpr std::int64_t kX = 4 * 6 * 7;
  constexpr std::int64_t kY = 4 * 6 * 5;
  constexpr std::int64_t kKernel = 4 * 5 * 7;
  constexpr std::int64_t kBias = 4 * 5;
  constexpr std::int64_t kFlop = 2 * 6 * 7 * 5;
  constexpr std::int64_t kZ = 4 * 6 * 3;  // elements of the second product, without bias and ReLU
  constexpr std::int64_t kKernel1 = 4 * 3 * 5;
  const auto works = work_in(profile_of(two_products()));
  EXPECT_THAT(works.at("dense forward"), Pair(kX + kKernel + kBias + kY, kFlop));
  EXPECT_THAT(works.at("dense weight gradient"), Pair(kX + 2 * kY + kKernel + kBias, kFlop));
  EXPECT_THAT(works.at("dense_1 weight gradient"), Pair(kY + kZ + kKernel1, 2 * 6 * 5 * 3));
  EXPECT_THAT(works.at("dense_1 data gradient"), Pair(kZ + kKernel1 + kY, 2 * 6 * 5 * 3));
  EXPECT_THAT(works.at("loss"), Pair(2 * kZ, 0));
  EXPECT_THAT(works.at("input"), Pair(0, 0));
}

TEST(StepProfile, CountsTheProductsOfAConvolution) {
  Network network({9, 8, 4});
  network.add(Conv2D({.filters = 6, .kernel = {3, 2}, .strides = 2, .groups = 2}));
  network.add(BatchNormalization());
  network.add(Flatten());
  network.add(Dense({.units = 2}));
  const auto works = work_in(profile_of(std::move(network)));
  // 4 x 4 outputs of 6 filters, each of 3 x 2 x 2 elements.
  constexpr std::int64_t kFlop = 2 * kProfiledSamples * 4 * 4 * 6 * (3 * 2 * 2);
  constexpr std::int64_t kY = 4 * kProfiledSamples * 4 * 4 * 6;
  constexpr std::int64_t kParameters = 4 * (6 * 3 * 2 * 2 + 6);
  EXPECT_THAT(works.at("conv2d forward"),
              Pair(4 * kProfiledSamples * 9 * 8 * 4 + kParameters + kY, kFlop));
  EXPECT_EQ(works.at("conv2d weight gradient").second, kFlop);
  EXPECT_EQ(works.at("batch_normalization forward").second, 0);
  EXPECT_GE(works.at("batch_normalization backward").first, 3 * kY);
  EXPECT_EQ(works.count("conv2d data gradient"), 0U) << "of the network's input";
  EXPECT_EQ(works.count("flatten forward"), 0U) << "which does nothing";
}

// By default, from the sizes of its operands: x and y [6, 7], an offset [7].
TEST(StepProfile, CountsTheBytesOfACustomLayer) {
  Network network({7});
  network.add(Shift());
  network.add(Dense({.units = 3}));
  const auto works = work_in(profile_of(std::move(network)));
  constexpr std::int64_t kX = 4 * 6 * 7;
  constexpr std::int64_t kOffset = 4 * 7;
  EXPECT_THAT(works.at("shift forward"), Pair(2 * kX + kOffset, 0));
  EXPECT_THAT(works.at("shift backward"), Pair(kX + 2 * kOffset, 0));
}

// The gradient of x comes from two readers: the second one adds to that of the first.
TEST(StepProfile, CountsAccumulatedGradients) {
  const auto network = [](bool adds) {
    Network made({7});
    const NodeId x = made.add(Shift());
    const NodeId y = made.add(Dense({.units = 7}), {x});
    if (adds) made.add(Add(), {y, x});
    made.add(Dense({.units = 3}), {made.last()});
    return made;
  };
  const auto product_bytes = [&](bool adds) {
    return work_in(profile_of(network(adds))).at("dense data gradient").first;
  };
  EXPECT_EQ(product_bytes(true) - product_bytes(false), 4 * 6 * 7);
}

TEST(StepProfile, AddsUpMicroBatches) {
  const auto once = work_in(profile_of(two_products()));
  const Profile twice = profile_of(two_products(), 0, 2);
  EXPECT_THAT(piece_names(twice), Contains("dense forward").Times(1));
  for (const auto& [name, work] : work_in(twice))
    EXPECT_THAT(work, Pair(2 * once.at(name).first, 2 * once.at(name).second)) << name;
}

TEST(StepProfile, ComputesMinimumTimes) {
  const Profile slow_memory =
      profile_of(two_products(), 0, 1, {.bytes_per_second = 1e3, .flop_per_second = 1e12});
  const Profile slow_arithmetic =
      profile_of(two_products(), 0, 1, {.bytes_per_second = 1e12, .flop_per_second = 1e3});
  std::int64_t bytes = 0;
  for (const ProfiledPiece& piece : slow_memory.pieces) {
    EXPECT_DOUBLE_EQ(piece.floor_milliseconds, static_cast<double>(piece.work.bytes));
    EXPECT_DOUBLE_EQ(piece.share(), piece.floor_milliseconds / piece.milliseconds);
    bytes += piece.work.bytes;
  }
  EXPECT_EQ(slow_memory.step.work.bytes, bytes);
  EXPECT_DOUBLE_EQ(slow_memory.step.floor_milliseconds, static_cast<double>(bytes));
  EXPECT_DOUBLE_EQ(slow_arithmetic.pieces[1].floor_milliseconds, 2 * 6 * 7 * 5);
}

TEST(StepProfile, CountsWaitingForTheInput) {
  const Profile profile = profile_of(two_products(), 3600);
  EXPECT_GE(profile.pieces.front().milliseconds, 3600e3);
  EXPECT_LT(profile.pieces.back().milliseconds, 3600e3);
  EXPECT_GE(profile.step.milliseconds, 3600e3);
}

TEST(StepProfile, MeasuresFullBatchesOnly) {
  device::Stream stream(device::Device{});
  StepProfile profile(stream);
  const auto step = [&](std::int64_t samples) {
    if (!profile.begin_step(samples, 0)) return false;
    profile.end("input", {});
    profile.end_step();
    return true;
  };
  for (int i = 0; i < StepProfile::kWarmUpSteps; ++i) EXPECT_FALSE(step(3));
  EXPECT_TRUE(step(3));
  EXPECT_TRUE(step(8)) << "the step of 3 was not full";
  EXPECT_FALSE(step(3));
  EXPECT_EQ(profile.steps(), 1);
  for (int i = 1; i < StepProfile::kMaxSteps; ++i) EXPECT_TRUE(step(8));
  EXPECT_FALSE(step(8));
  EXPECT_EQ(profile.result({}).samples, 8);
}

TEST(DeviceSpeed, IsMeasuredInThePrecisionOfTheBackend) {
  Trial trial(two_products(), kProfiledSamples);
  const DeviceSpeed speed = measure_speed(trial.model().backend());
  EXPECT_GT(speed.bytes_per_second, 0);
  EXPECT_GT(speed.flop_per_second, 0);
}

}  // namespace
}  // namespace lockstep::inline v0::model
