// When a convolution on a GPU computes the statistics for the following normalization, on simulated
// GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/device/recording.h"
#include "lockstep/model/cuda/algorithm_cache.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/cache_folder.h"
#include "tests/model/support/sides.h"
#include "tests/support/pretend_cuda/cudnn_graph.h"
#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kApart = -1;
// The engines of the simulated cuDNN, in the order of its proposals.
constexpr int kIdle = 0;  // does not work
constexpr int kWorking = 1;
constexpr int kWithWorkspace = 2;
constexpr int kSafe = 3;

Network with_two_convolutions(std::int64_t groups = 1, bool bias = false) {
  Network network({8, 8, 4});
  network.add(Conv2D({.filters = 8, .kernel = 3, .groups = groups, .use_bias = bias}));
  network.add(BatchNormalization());
  network.add(ReLU());
  network.add(
      Conv2D({.filters = 4, .kernel = 3, .strides = 2, .groups = groups, .use_bias = bias}));
  network.add(BatchNormalization());
  network.add(Flatten());
  network.add(Dense({.units = 5}));
  return network;
}

ComputeOptions where_possible(Precision precision = Precision::bfloat16) {
  return {.precision = precision, .fused_statistics = FusedStatistics::where_possible};
}

class FusedStatisticsTest : public testing::Test {
 protected:
  // The results of training steps on three samples, and the number of convolutions that computed
  // statistics.
  struct Training {
    std::uint64_t found = 0;
    Values losses;
    Values gradients;
    Values buffers;
  };
  static Training train(const Network& network, const ComputeOptions& options, int steps = 1,
                        const ComputeHooks& hooks = {}) {
    const auto shared = std::make_shared<const Network>(network);
    Side gpu(kGpu, shared, options, hooks);
    gpu.model().prepare(3, true);  // measures if necessary
    const Data data(network, 3);
    Training training;
    const std::uint64_t before = pretend::graph_runs();
    for (int step = 0; step < steps; ++step) {
      if (step > 0) gpu.descend(0.2f);
      training.losses.push_back(static_cast<float>(
          gpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss).loss_sum));
    }
    training.found = pretend::graph_runs() - before;
    training.gradients = gpu.gradients();
    training.buffers = gpu.buffers();
    return training;
  }

  // The cache entries of convolutions with sums: numbers of engines.
  std::vector<int> remembered() const {
    std::vector<int> numbers;
    const nlohmann::json all = cache_.read();
    for (const auto& [name, value] : all.items())
      if (name.starts_with("forward with sums of ")) numbers.push_back(value[0].get<int>());
    return numbers;
  }
  void remember(int number) const {
    nlohmann::json all = cache_.read();
    for (auto& [name, value] : all.items())
      if (name.starts_with("forward with sums of ")) value = {number, cuda::kGraphMath, 0};
    cache_.write(all);
  }

  CacheFolder cache_;
};

TEST_F(FusedStatisticsTest, AreComputedByEveryCapableConvolution) {
  for (const Precision precision : {Precision::bfloat16, Precision::float16})
    EXPECT_EQ(train(with_two_convolutions(), where_possible(precision)).found, 2U)
        << to_string(precision);
}

// Some normalizations include the addition of the block; some convolutions share their input.
TEST_F(FusedStatisticsTest, AreComputedThroughoutAResNet) {
  const Network network = zoo::resnet18({16, 16, 3}, 5, {.width = 4});
  ComputeOptions apart = where_possible(Precision::float16);
  apart.fused_statistics = FusedStatistics::never;
  const Training together = train(network, where_possible(Precision::float16));
  const Training expected = train(network, apart);
  EXPECT_EQ(together.found, 20U);
  EXPECT_EQ(expected.found, 0U);
  EXPECT_LE(error(together.losses, expected.losses), 0.03);
  EXPECT_LE(error(together.buffers, expected.buffers), 0.03);
}

TEST_F(FusedStatisticsTest, AreNotComputedIfUnused) {
  ComputeOptions never = where_possible();
  never.fused_statistics = FusedStatistics::never;
  ComputeOptions deterministic = where_possible();
  deterministic.deterministic = true;
  for (const ComputeOptions& options : {never, deterministic, where_possible(Precision::float32)})
    EXPECT_EQ(train(with_two_convolutions(), options).found, 0U) << to_string(options.precision);
  EXPECT_EQ(train(with_two_convolutions(2), where_possible()).found, 0U) << "groups";
  EXPECT_EQ(train(with_two_convolutions(1, true), where_possible()).found, 0U) << "bias";
}

TEST_F(FusedStatisticsTest, AreNotComputedForAFrozenNormalization) {
  Network network = with_two_convolutions();
  const std::vector<std::string> first = {"batch_normalization/*"};
  network.freeze(first);
  EXPECT_EQ(train(network, where_possible()).found, 1U);
  const std::vector<std::string> second = {"batch_normalization_1/*"};
  network.freeze(second);
  ComputeOptions never = where_possible();
  never.fused_statistics = FusedStatistics::never;
  const Training training = train(network, where_possible());
  const Training expected = train(network, never);
  EXPECT_EQ(training.found, 0U);
  EXPECT_EQ(training.losses, expected.losses);
  EXPECT_EQ(training.buffers, expected.buffers);
}

TEST_F(FusedStatisticsTest, AreNotComputedInInference) {
  const Network network = with_two_convolutions();
  Side gpu(kGpu, std::make_shared<const Network>(network), where_possible());
  const Data data(network, 3);
  const std::uint64_t before = pretend::graph_runs();
  EXPECT_EQ(gpu.model().evaluate_batch(data.batch_for(kLoss), kLoss).samples, 3);
  EXPECT_THAT(gpu.model().predict_batch(data.samples, data.features), SizeIs(15));
  EXPECT_EQ(pretend::graph_runs(), before);
}

TEST_F(FusedStatisticsTest, AreComputedSeparatelyIfCudnnHasNoEngine) {
  ComputeOptions never = where_possible();
  never.fused_statistics = FusedStatistics::never;
  const Training plain = train(with_two_convolutions(), never);
  const pretend::Machine machine({.sums_convolutions = false});
  for (const FusedStatistics when :
       {FusedStatistics::where_possible, FusedStatistics::where_faster}) {
    ComputeOptions options = where_possible();
    options.fused_statistics = when;
    const Training training = train(with_two_convolutions(), options);
    EXPECT_EQ(training.found, 0U);
    EXPECT_EQ(training.losses, plain.losses);
    EXPECT_EQ(training.buffers, plain.buffers);
  }
  EXPECT_THAT(remembered(), AllOf(SizeIs(2), Each(kApart))) << "they are not measured again";
}

TEST_F(FusedStatisticsTest, AreMeasuredOncePerShape) {
  const ComputeOptions where_faster{.precision = Precision::bfloat16};
  train(with_two_convolutions(), where_faster);
  // Whichever was faster works.
  EXPECT_THAT(remembered(), AllOf(SizeIs(2), Each(AnyOf(kApart, kWorking, kWithWorkspace, kSafe))));

  for (const int number : {kWorking, kWithWorkspace, kSafe}) {
    remember(number);
    EXPECT_EQ(train(with_two_convolutions(), where_faster).found, 2U) << number;
    EXPECT_THAT(remembered(), Each(number));
  }
  // Other processes may have written the cache: its entries may not work here.
  for (const int number : {kApart, kIdle, kSafe + 1}) {
    remember(number);
    EXPECT_EQ(train(with_two_convolutions(), where_faster).found, 0U) << number;
  }
}

TEST_F(FusedStatisticsTest, AreNotComputedByEnginesThatCompileTheirKernels) {
  const pretend::Machine machine({.compiles_at_run_time = true});
  const ComputeOptions where_faster{.precision = Precision::bfloat16};
  train(with_two_convolutions(), where_faster);
  EXPECT_THAT(remembered(), Each(AnyOf(kApart, kWorking)));
  remember(kWithWorkspace);
  EXPECT_EQ(train(with_two_convolutions(), where_faster).found, 0U);
}

TEST_F(FusedStatisticsTest, AreMeasuredInAFewConfigurations) {
  const pretend::Machine machine({.idle_engines = 30});
  const std::uint64_t before = pretend::graph_plans();
  train(with_two_convolutions(), {.precision = Precision::bfloat16});
  EXPECT_EQ(pretend::graph_plans() - before, 16U) << "8 for each convolution";
  EXPECT_THAT(remembered(), Each(kApart));
}

TEST_F(FusedStatisticsTest, ReportTheTimeOfMeasurements) {
  const auto seconds = [](const ComputeOptions& options) {
    Side gpu(kGpu, std::make_shared<const Network>(with_two_convolutions()), options);
    EXPECT_EQ(gpu.model().backend().tuning_seconds(), 0);
    gpu.model().prepare(3, true);
    return gpu.model().backend().tuning_seconds();
  };
  const ComputeOptions where_faster{.precision = Precision::bfloat16};
  EXPECT_GT(seconds(where_faster), 0);
  EXPECT_EQ(seconds(where_faster), 0) << "all of it is in the cache";
}

TEST_F(FusedStatisticsTest, AddNothingToAnOlderCache) {
  ComputeOptions never{.precision = Precision::bfloat16,
                       .fused_statistics = FusedStatistics::never};
  train(with_two_convolutions(), never);
  const nlohmann::json before = cache_.read();
  EXPECT_THAT(remembered(), IsEmpty());
  train(with_two_convolutions(), {.precision = Precision::bfloat16});
  const nlohmann::json after = cache_.read();
  EXPECT_THAT(after, SizeIs(before.size() + 2));
  for (const auto& [name, value] : before.items()) EXPECT_EQ(after.at(name), value) << name;
}

TEST_F(FusedStatisticsTest, DoNotChangeATraining) {
  for (const auto& [precision, tolerance] :
       {std::pair{Precision::bfloat16, 0.12}, {Precision::float16, 0.03}}) {
    SCOPED_TRACE(to_string(precision));
    ComputeOptions apart = where_possible(precision);
    apart.fused_statistics = FusedStatistics::never;
    const Training together = train(with_two_convolutions(), where_possible(precision), 8);
    const Training expected = train(with_two_convolutions(), apart, 8);
    EXPECT_EQ(together.found, 16U);
    EXPECT_LT(expected.losses.back(), 0.8f * expected.losses.front()) << "it learns";
    EXPECT_LE(error(together.losses, expected.losses), tolerance);
    EXPECT_LE(error(together.buffers, expected.buffers), tolerance);
  }
}

TEST_F(FusedStatisticsTest, AreComputedInRecordedSteps) {
  const Network network = with_two_convolutions();
  const Data data(network, 3);
  const Training plain = train(network, where_possible());
  Side gpu(kGpu, std::make_shared<const Network>(network), where_possible());
  gpu.model().load(data.batch_for(kLoss), data.context(), kLoss);
  device::Stream& stream = gpu.model().backend().stream();
  const std::uint64_t before = pretend::graph_runs();
  device::Recorder recorder(stream);
  gpu.model().train_loaded(data.samples, data.context(), kLoss);
  EXPECT_EQ(pretend::graph_runs(), before);
  device::Recording recording = recorder.finish();
  EXPECT_EQ(gpu.buffers(), plain.buffers);
  EXPECT_LE(error(gpu.gradients(), plain.gradients), 0.03) << "whose sums have no fixed order";
  recording.launch(stream);
  stream.synchronize();
  EXPECT_EQ(pretend::graph_runs(), before + 4);
}

// A group of one.
class Alone final : public StatisticsExchange {
 public:
  int members() const override { return 1; }
  int member() const override { return 0; }
  void sum(std::span<float> /*values*/) override { ++calls; }

  int calls = 0;
};

TEST_F(FusedStatisticsTest, AreExchangedLikeSeparateStatistics) {
  Alone alone;
  const Training exchanged =
      train(with_two_convolutions(), where_possible(), 1, {.statistics = &alone});
  EXPECT_EQ(exchanged.found, 2U);
  EXPECT_EQ(alone.calls, 4) << "forward and backward of two normalizations";
  EXPECT_EQ(exchanged.buffers, train(with_two_convolutions(), where_possible()).buffers);
}

// Sums of squares lose precision: all values of a channel are nearly equal.
TEST_F(FusedStatisticsTest, HaveNoVarianceBelowZero) {
  Network network({4, 4, 1});
  network.add(Conv2D({.filters = 4, .kernel = 1, .use_bias = false}));
  network.add(BatchNormalization({.momentum = 0}));
  network.add(GlobalAveragePooling2D());
  network.add(Dense({.units = 5}));
  Side gpu(kGpu, std::make_shared<const Network>(network), where_possible());
  Data data(network, 3);
  std::ranges::fill(data.features, 30.1f);
  gpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss);
  const ParameterInfo& variance = gpu.model().buffer_table().entries()[1];
  ASSERT_EQ(variance.count, 4U);
  const Values buffers = gpu.buffers();
  const Values gradients = gpu.gradients();
  for (const float value : std::span(buffers).subspan(variance.offset, variance.count)) {
    EXPECT_GE(value, 0);
    EXPECT_LT(value, 0.01f);
  }
  EXPECT_THAT(gradients, Each(::testing::Not(::testing::IsNan())));
}

}  // namespace
}  // namespace lockstep::inline v0::model
