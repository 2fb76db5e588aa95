// The choice of the cuDNN interface for a convolution, on simulated GPUs, whose graph API supports
// only convolutions with sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/model/cuda/algorithm_cache.h"
#include "lockstep/model/layers/layers.h"
#include "tests/model/support/cache_folder.h"
#include "tests/model/support/sides.h"
#include "tests/support/device_error.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::HasSubstr;

// Two convolutions read the first one's output, with zeros on one side.
std::shared_ptr<const Network> uneven_network() {
  auto network = std::make_shared<Network>(Shape{7, 5, 3});
  const NodeId input = network->add(Conv2D({.filters = 4, .kernel = 1}));
  const Conv2D uneven({.filters = 5, .kernel = 4, .strides = 2, .padding = Padding::same});
  const NodeId first = network->add(uneven, {input});
  const NodeId second = network->add(uneven, {input});
  network->add(Add(), {first, second});
  network->add(Flatten());
  network->add(Dense({.units = 5}));
  return network;
}

// A first layer that can be folded: with bias and ReLU, or a normalization after it.
std::shared_ptr<const Network> stem_network(bool is_normalized) {
  auto network = std::make_shared<Network>(Shape{12, 10, 3});
  network->add(Conv2D({.filters = 6,
                       .kernel = 7,
                       .strides = 2,
                       .padding = Padding::symmetric,
                       .use_bias = !is_normalized}));
  if (is_normalized) network->add(BatchNormalization());
  network->add(ReLU());
  network->add(Flatten());
  network->add(Dense({.units = 5}));
  return network;
}

class GpuConvolution : public testing::Test {
 protected:
  // Gradients of the second of two steps, which starts from the state of the first.
  static Values train(device::Device device, const ComputeOptions& options,
                      const std::shared_ptr<const Network>& network = GpuConvolution::network()) {
    Side side(device, network, options);
    const Data data(*network, 3);
    for (int step = 0; step < 2; ++step)
      side.model().train_batch(data.batch_for(kLoss), data.context(), kLoss);
    return side.gradients();
  }
  static std::shared_ptr<const Network> network() {
    static const std::shared_ptr<const Network> network = uneven_network();
    return network;
  }

  CacheFolder cache_;
};

TEST_F(GpuConvolution, AddsASecondGradientWithUnevenZeros) {
  const Values expected = train({}, {});
  EXPECT_LE(error(train(kGpu, {}), expected), 1e-5);
  EXPECT_LE(error(train(kGpu, {.deterministic = true}), expected), 1e-5);
}

TEST_F(GpuConvolution, FallsBackToTheLegacyInterface) {
  const auto with = [](Convolutions convolutions) {
    return ComputeOptions{.deterministic = true, .convolutions = convolutions};
  };
  EXPECT_EQ(train(kGpu, with(Convolutions::automatic)), train(kGpu, with(Convolutions::legacy)));
  for (const bool deterministic : {true, false})
    EXPECT_THAT(device_error_of([&] {
                  train(kGpu,
                        {.deterministic = deterministic, .convolutions = Convolutions::graph});
                }),
                HasSubstr("a graph other than a convolution and its sums"));
}

TEST_F(GpuConvolution, IsMeasuredForEachChoice) {
  train(kGpu, {});
  const nlohmann::json of_either = cache_.read();
  EXPECT_EQ(of_either.size(), 6U)
      << "two shapes, two gradients of the first one's output; none of the network's input";
  train(kGpu, {.convolutions = Convolutions::legacy});
  const nlohmann::json all = cache_.read();
  EXPECT_EQ(all.size(), 12U);
  for (const auto& [name, value] : of_either.items()) EXPECT_EQ(all.at(name), value) << name;
}

// Other processes may have written the cache: its entries may not work here.
TEST_F(GpuConvolution, IsMeasuredAgainIfTheCachedAlgorithmFails) {
  const Values expected = train({}, {});
  train(kGpu, {});
  nlohmann::json all = cache_.read();
  for (auto& [name, value] : all.items()) value = {0, cuda::kGraphMath, 0};
  cache_.write(all);
  EXPECT_LE(error(train(kGpu, {}), expected), 1e-5);
  const nlohmann::json again = cache_.read();
  for (const auto& [name, value] : again.items()) EXPECT_NE(value[1], cuda::kGraphMath) << name;
}

// The cache lists the folded algorithm as fastest: without a workspace, and with one.
TEST_F(GpuConvolution, ReadsAFoldedImageInBothPasses) {
  constexpr int kEnoughSpace = 1 << 16;
  for (const bool is_normalized : {false, true}) {
    const auto network = stem_network(is_normalized);
    const Data data(*network, 3);
    const Values expected = train({}, {}, network);
    for (const Precision precision :
         {Precision::float32, Precision::bfloat16, Precision::float16}) {
      const double tolerance = precision == Precision::float32    ? 1e-5
                               : precision == Precision::bfloat16 ? 0.12
                                                                  : 0.03;
      const ComputeOptions options{.precision = precision};
      train(kGpu, options, network);
      nlohmann::json all = cache_.read();
      for (const int algorithm : {0, 1}) {
        SCOPED_TRACE(to_string(precision) + ", algorithm " + std::to_string(algorithm));
        for (auto& [name, value] : all.items())
          if (value[0] >= 0) value = {algorithm, 0, algorithm * kEnoughSpace, true};
        cache_.write(all);
        Side gpu(kGpu, network, options);
        gpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss);
        EXPECT_EQ(gpu.model().backend().tuning_seconds(), 0);
        EXPECT_LE(error(gpu.gradients(), expected), tolerance);
        if (is_normalized) continue;  // statistics are of a micro-batch
        gpu.model().train_batch(data.part(0, 1), data.context(), kLoss);
        gpu.model().train_batch(data.part(1, 2), data.context(1), kLoss, true);
        EXPECT_LE(error(gpu.gradients(), expected), tolerance);
      }
    }
  }
}

TEST_F(GpuConvolution, ReadsTheUnfoldedImageIfDeterministic) {
  const auto network = stem_network(false);
  Side gpu(kGpu, network, {.deterministic = true});
  gpu.model().prepare(3, true);
  EXPECT_EQ(gpu.model().backend().tuning_seconds(), 0);
  EXPECT_LE(error(train(kGpu, {.deterministic = true}, network), train({}, {}, network)), 1e-5);
}

}  // namespace
}  // namespace lockstep::inline v0::model
