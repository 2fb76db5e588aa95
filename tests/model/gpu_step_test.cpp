// The cost of a training step on simulated GPUs: kernels, copies and memory. Also algorithms that
// the libraries propose but fail to run.
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/cache_folder.h"
#include "tests/model/support/sides.h"
#include "tests/support/pretend_cuda/grid.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/memory.h"

namespace lockstep::inline v0::model {
namespace {

struct StepCost {
  std::uint64_t kernels = 0;  // our own, without those of cuDNN and cuBLASLt
  std::uint64_t copies = 0;   // within the GPU's memory
  std::size_t activation_bytes = 0;
};

// Without fused statistics, which save a kernel at each normalization.
StepCost cost_of_step(const Network& network, std::int64_t samples) {
  const auto shared = std::make_shared<const Network>(network);
  Side gpu(kGpu, shared,
           {.precision = Precision::bfloat16,
            .deterministic = true,
            .fused_statistics = FusedStatistics::never});
  const Data data(network, samples);
  gpu.model().prepare(samples, true);
  gpu.model().load(data.batch_for(kLoss), data.context(), kLoss);
  StepCost cost{.activation_bytes = gpu.model().memory().activations};
  const std::uint64_t kernels = pretend::kernel_launches();
  const std::uint64_t copies = pretend::device_copies();
  gpu.model().train_loaded(samples, data.context(), kLoss);
  cost.kernels = pretend::kernel_launches() - kernels;
  cost.copies = pretend::device_copies() - copies;
  gpu.gradients();  // waits
  return cost;
}

// A convolution reads x, which is also added to the output.
Network residual_blocks(int blocks, std::int64_t channels) {
  Network network({8, 8, channels});
  network.add(Conv2D({.filters = channels, .kernel = 1, .use_bias = false}));
  network.add(BatchNormalization());
  network.add(ReLU());
  for (int block = 0; block < blocks; ++block) {
    const NodeId input = network.last();
    network.add(Conv2D(
        {.filters = channels, .kernel = 3, .padding = Padding::symmetric, .use_bias = false}));
    const NodeId normalized = network.add(BatchNormalization());
    network.add(Add(), {normalized, input});
    network.add(ReLU());
  }
  network.add(Flatten());
  network.add(Dense({.units = 5}));
  return network;
}

// A block costs the kernels of one normalization. The gradient of its input comes from two readers,
// and is not added in a separate kernel.
TEST(GpuStep, RunsSixKernelsForANormalizationAndNoneForItsReluAndAddition) {
  constexpr std::uint64_t kNormalizationKernels = 6;
  const StepCost two = cost_of_step(residual_blocks(2, 8), 2);
  const StepCost five = cost_of_step(residual_blocks(5, 8), 2);
  EXPECT_EQ(five.kernels - two.kernels, 3 * kNormalizationKernels)
      << "and no conversion of a gradient";
  EXPECT_EQ(five.copies, 0U);
}

// 53 normalizations, whose kernels are above; the gradients in 16 bits are converted by a kernel
// for each million elements.
TEST(GpuStep, RunsFewerThan340KernelsAndNoCopiesForResNet50) {
  const StepCost cost =
      cost_of_step(zoo::resnet50({64, 64, 3}, 5, {.width = 8, .stem = zoo::Stem::imagenet}), 2);
  EXPECT_LE(cost.kernels, 53 * 6 + 1 + 14U);
  EXPECT_EQ(cost.copies, 0U);
}

// The memory that a block adds to a step: the outputs of its convolution and of its normalization,
// and one bit for each element of the latter. No memory for a second gradient.
TEST(GpuStep, KeepsOneBitForAReluAndNoSecondGradient) {
  constexpr std::int64_t kChannels = 64;
  constexpr std::int64_t kSamples = 16;
  constexpr std::size_t kElements = kSamples * 8 * 8 * kChannels;
  constexpr std::size_t kStatistics = (2 * kChannels + 1) * sizeof(float);
  constexpr std::size_t kRounding = 4 * 64;
  const auto bytes = [](int blocks) {
    return cost_of_step(residual_blocks(blocks, kChannels), kSamples).activation_bytes;
  };
  const std::size_t block_bytes = (bytes(6) - bytes(2)) / 4;
  EXPECT_LE(block_bytes, 2 * 2 * kElements + kElements / 8 + kStatistics + kRounding);
}

// On the GPU, too, normalizations move their statistics once. Fused sums of a convolution are
// written again with it.
TEST(GpuStep, RecomputesActivationsWithTheSameResultInLessMemory) {
  const CacheFolder cache;
  const auto network = std::make_shared<const Network>(residual_blocks(6, 16));
  const Data data(*network, 4);
  const auto compare = [&](ComputeOptions options, double tolerance) {
    Side kept(kGpu, network, options);
    options.recompute = Recompute::blocks;
    Side recomputed(kGpu, network, options);
    for (int step = 0; step < 2; ++step) {
      for (Side* side : {&kept, &recomputed}) {
        side->model().train_batch(data.part(0, 3), data.context(), kLoss);
        side->model().train_batch(data.part(3, 1), data.context(3), kLoss, true);
      }
      EXPECT_LE(error(recomputed.gradients(), kept.gradients()), tolerance) << step;
      EXPECT_LE(error(recomputed.buffers(), kept.buffers()), tolerance) << step;
    }
    EXPECT_LT(recomputed.model().memory().activations, kept.model().memory().activations);
  };
  compare({.deterministic = true}, 0);
  compare({.precision = Precision::bfloat16, .deterministic = true}, 0);
  compare({.precision = Precision::bfloat16, .fused_statistics = FusedStatistics::where_possible},
          0.02);
}

TEST(GpuStep, AddsASecondGradientWhereTheConvolutionAddsIt) {
  Network network({8, 8, 8});
  const NodeId input = network.add(Conv2D({.filters = 8, .kernel = 1}));
  const NodeId first = network.add(Conv2D({.filters = 8, .kernel = 1}), {input});
  const NodeId second = network.add(Conv2D({.filters = 8, .kernel = 1}), {input});
  const NodeId third = network.add(Conv2D({.filters = 8, .kernel = 1}), {input});
  network.add(Add(), {first, second, third});
  network.add(Flatten());
  network.add(Dense({.units = 5}));
  const auto shared = std::make_shared<const Network>(network);
  const Data data(network, 3);
  Side cpu(device::Device{}, shared, {});
  Side gpu(kGpu, shared, {});
  for (int step = 0; step < 2; ++step) {
    cpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss);
    gpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss);
    EXPECT_LE(error(gpu.gradients(), cpu.gradients()), 1e-5) << step;
  }
}

class GpuStepInput : public testing::TestWithParam<Precision> {};

// Images of three channels are padded to four or eight if only the network's first layer reads
// them.
TEST_P(GpuStepInput, HasTheChannelsThatTensorCoresRead) {
  constexpr std::size_t kPixels = std::size_t{3} * 64 * 64;  // in three samples
  const auto activations = [](bool read_twice) {
    Network network({64, 64, 3});
    const NodeId first = network.add(Conv2D({.filters = 8, .kernel = 1, .strides = 16}));
    if (read_twice) {
      network.add(Conv2D({.filters = 8, .kernel = 1, .strides = 16}), {kInput});
      network.add(Add(), {first, network.last()});
    }
    network.add(Flatten());
    network.add(Dense({.units = 5}));
    Side gpu(kGpu, std::make_shared<const Network>(network),
             {.precision = GetParam(), .deterministic = true});
    gpu.model().prepare(3, false);
    return gpu.model().memory().activations;
  };
  const std::size_t additional = GetParam() == Precision::float32   ? 0
                                 : GetParam() == Precision::float16 ? 1
                                                                    : 5;
  constexpr std::size_t kRest = std::size_t{16} << 10;  // kernels, outputs and workspaces
  EXPECT_LE(activations(true), kPixels * 3 * element_bytes(GetParam()) + kRest);
  EXPECT_GE(activations(false), kPixels * (3 + additional) * element_bytes(GetParam()));
}

TEST_P(GpuStepInput, ConvertsPixelsToFeaturesBeforeAConvolution) {
  for (const std::int64_t channels : {1, 3, 4}) {
    Network network({6, 5, channels});
    network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
    network.add(Flatten());
    network.add(Dense({.units = 5}));
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(2 * 6 * 5 * channels));
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(7 * i);
    for (const int normalized : {0, static_cast<int>(channels)}) {
      const ChannelNormalization normalization = {.channels = normalized,
                                                  .mean = {0.1f, 0.2f, 0.3f, 0.4f},
                                                  .deviation = {0.5f, 0.4f, 0.3f, 0.2f}};
      std::vector<float> features(pixels.size());
      pixels_to_features(pixels, normalization, features);
      const std::vector<std::int32_t> classes = {1, 4};
      Side gpu(kGpu, std::make_shared<const Network>(network),
               {.precision = GetParam(), .deterministic = true});
      const auto train = [&](const BatchView& batch) {
        gpu.model().train_batch(batch, {.global_samples = 2}, kLoss);
        return gpu.gradients();
      };
      EXPECT_EQ(train({.samples = 2,
                       .pixels = pixels,
                       .normalization = normalization,
                       .targets = {.labels = classes}}),
                train({.samples = 2, .features = features, .targets = {.labels = classes}}))
          << channels << " channels, " << normalized << " normalized";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GpuStepInput,
                         testing::Values(Precision::float32, Precision::bfloat16,
                                         Precision::float16),
                         [](const auto& test) { return to_string(test.param); });

// The first proposal may not run, which cuBLASLt reports only when it runs.
TEST(GpuStep, RunsTheNextProposalForAProduct) {
  Network network({9});
  network.add(Dense({.units = 7}));
  network.add(ReLU());
  network.add(Dense({.units = 5}));
  const auto shared = std::make_shared<const Network>(network);
  const Data data(network, 3);
  const auto train = [&] {
    Side gpu(kGpu, shared, {.precision = Precision::bfloat16});
    for (int step = 0; step < 2; ++step)
      gpu.model().train_batch(data.batch_for(kLoss), data.context(), kLoss);
    return gpu.gradients();
  };
  const Values expected = train();
  const pretend::Machine machine({.gpus = 1, .runs_first_products = false});
  EXPECT_EQ(train(), expected);
}

}  // namespace
}  // namespace lockstep::inline v0::model
