// Verdicts on trainings with a planted bottleneck.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "lockstep/model/layer/custom_layer.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::milliseconds kPlanted(
    2);  // for each record or step, by far the largest part

void compute_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) continue;
}

/// Returns the second epoch of a training: in the first one, caches and threads warm up.
EpochLogs second_epoch(int replicas, const model::Network& network, const data::Dataset& dataset,
                       FitOptions fit = {}) {
  fit.epochs = 2;
  fit.read.data_threads = 1;
  return train(replicas, network, dataset, {}, fit).history.epochs.back();
}

TEST(Breakdowns, HaveDisjointPartsOfEachStep) {
  for (const int replicas : {1, 2, 4}) {
    const Outcome outcome = train(replicas, plain_network(), small_data(80).batch(8));
    double seconds = 0;
    for (const StepLogs& logs : outcome.steps) {
      for (const StepPart& part : kStepParts)
        EXPECT_GE(logs.breakdown.*part.member, 0) << part.name << " of step " << logs.step;
      EXPECT_GT(logs.breakdown.compute, 0);
      EXPECT_GT(logs.breakdown.update, 0);
      EXPECT_EQ(logs.breakdown.checkpoint, 0);
      seconds += logs.breakdown.total();
    }
    EXPECT_LE(seconds, outcome.history.end.seconds) << replicas << " replicas";
    EXPECT_GT(outcome.history.epochs.front().breakdown.total(), 0);
  }
}

TEST(Breakdowns, CountTheCheckpointBeforeAStep) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit;
  fit.checkpoint.directory = directory.path();
  fit.checkpoint.save_every = 3;
  const Outcome outcome = train(2, plain_network(), small_data(64).batch(8), {}, fit);
  ASSERT_EQ(outcome.steps.size(), 8U);
  for (const std::size_t after : {3, 6}) EXPECT_GT(outcome.steps[after].breakdown.checkpoint, 0);
  for (const std::size_t other : {0, 1, 2}) EXPECT_EQ(outcome.steps[other].breakdown.checkpoint, 0);
}

TEST(LongVerdict, OfASlowReaderIsInput) {
  const auto slow = [](data::Sample&, const data::SampleKey&) {
    std::this_thread::sleep_for(kPlanted);
  };
  const auto verdict = second_epoch(1, plain_network(), small_data(400).map(slow).batch(8)).verdict;
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->bound_by, "input") << verdict->text;
  EXPECT_THAT(verdict->text, HasSubstr("slow storage"));
}

TEST(LongVerdict, CoversSeveralShortEpochs) {
  const auto slow = [](data::Sample&, const data::SampleKey&) {
    std::this_thread::sleep_for(4 * kPlanted);
  };
  FitOptions fit{.epochs = 4};
  fit.read.data_threads = 1;
  const auto epochs =
      train(1, plain_network(), small_data(24).map(slow).batch(8), {}, fit).history.epochs;
  EXPECT_FALSE(epochs[0].verdict) << "two steps after the first one of the run";
  ASSERT_TRUE(epochs[1].verdict) << "on five steps";
  EXPECT_EQ(epochs[1].verdict->bound_by, "input");
  EXPECT_FALSE(epochs[2].verdict) << "three steps";
  EXPECT_TRUE(epochs[3].verdict);
}

TEST(LongVerdict, OfSlowDecodingIsInputToo) {
  const auto slow = [](data::Sample&, const data::SampleKey&) { compute_for(kPlanted); };
  const auto verdict = second_epoch(1, plain_network(), small_data(400).map(slow).batch(8)).verdict;
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->bound_by, "input") << verdict->text;
  EXPECT_THAT(verdict->text, Not(HasSubstr("slow storage")));
}

/// An identity layer that sleeps in backward on the replica of the second half of each batch.
class SlowLayer final : public model::CustomLayer {
 public:
  std::string kind() const override { return "slow"; }
  model::Shape build(model::BuildContext& context) const override { return context.input(); }
  void forward(const model::Tensors& tensors, const model::PassContext& /*pass*/) const override {
    std::ranges::copy(tensors.inputs[0], tensors.output.begin());
  }
  void backward(const model::Tensors& tensors, const model::PassContext& pass) const override {
    if (pass.first_sample > 0) std::this_thread::sleep_for(5 * kPlanted);
    if (!tensors.input_gradients[0].empty())
      std::ranges::copy(tensors.output_gradient, tensors.input_gradients[0].begin());
  }
};

TEST(LongVerdict, OfASlowReplicaNamesIt) {
  model::Network network({16}, "slow");
  network.add(model::Dense({.units = 12}));
  network.add(SlowLayer());
  network.add(model::Dense({.units = kClasses}));
  const EpochLogs epoch = second_epoch(2, network, small_data(400).batch(8));
  ASSERT_TRUE(epoch.verdict);
  EXPECT_EQ(epoch.verdict->bound_by, "straggler") << epoch.verdict->text;
  EXPECT_THAT(epoch.verdict->text, HasSubstr("replica 1 "));
  EXPECT_GT(epoch.breakdown.waiting, 0.008);
  EXPECT_LT(epoch.breakdown.communication, epoch.breakdown.waiting);
}

/// Makes each checkpoint as slow as a slow disk would.
class SlowState final : public Callback {
 public:
  std::string name() const override { return "slow"; }
  checkpoint::Configuration state() const override {
    std::this_thread::sleep_for(20 * kPlanted);
    return {};
  }
};

TEST(LongVerdict, OfSlowCheckpointsIsCheckpoint) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit;
  fit.checkpoint.directory = directory.path();
  fit.checkpoint.save_every = 2;
  fit.callbacks = {std::make_shared<SlowState>()};
  const EpochLogs epoch = second_epoch(2, plain_network(), small_data(160).batch(8), fit);
  ASSERT_TRUE(epoch.verdict);
  EXPECT_EQ(epoch.verdict->bound_by, "checkpoint") << epoch.verdict->text;
  EXPECT_GT(epoch.breakdown.checkpoint, 0.015);
}

TEST(LongVerdict, OfALargeModelWithATinyBatchIsMemory) {
  model::Network network({16}, "wide");
  network.add(model::Dense({.units = 2048}));
  network.add(model::Dense({.units = 2048}));
  network.add(model::Dense({.units = kClasses}));
  const auto verdict = second_epoch(1, network, small_data(60).batch(1)).verdict;
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->bound_by, "memory") << verdict->text;
  EXPECT_THAT(verdict->text, HasSubstr("a per-replica batch of "));
}

TEST(LongVerdict, OfALargeBatchIsCompute) {
  model::Network network({16}, "deep");
  for (int layer = 0; layer < 4; ++layer) network.add(model::Dense({.units = 768}));
  network.add(model::Dense({.units = kClasses}));
  const auto verdict = second_epoch(1, network, small_data(10'000).batch(500)).verdict;
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->bound_by, "compute") << verdict->text;
}

}  // namespace
}  // namespace lockstep::inline v0::train
