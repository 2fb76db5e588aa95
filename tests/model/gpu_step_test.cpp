// What a training step costs on a GPU, as simulated GPUs count it: kernels, copies and memory. And
// algorithms that the libraries propose but refuse to run.
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/sides.h"
#include "tests/support/pretend_cuda/grid.h"
#include "tests/support/pretend_cuda/machine.h"
#include "tests/support/pretend_cuda/memory.h"

namespace lockstep::model {
namespace {

struct StepCost {
  std::uint64_t kernels = 0;  // of this project; those of cuDNN and cuBLASLt are not counted
  std::uint64_t copies = 0;   // from the GPU's memory to the GPU's memory
  std::size_t activation_bytes = 0;
};

// Without the statistics of cuDNN's convolutions, which save a kernel at each normalization.
StepCost cost_of_step(const Network& network, std::int64_t samples) {
  const auto shared = std::make_shared<const Network>(network);
  Side gpu(kGpu, shared,
           {.precision = Precision::bfloat16,
            .deterministic = true,
            .fused_statistics = FusedStatistics::never});
  const Data data(network, samples);
  gpu.model().prepare(samples, true);
  gpu.model().load(data.of(kLoss), data.context(), kLoss);
  StepCost cost{.activation_bytes = gpu.model().memory().activations};
  const std::uint64_t kernels = pretend::kernel_launches();
  const std::uint64_t copies = pretend::device_copies();
  gpu.model().train_loaded(samples, data.context(), kLoss);
  cost.kernels = pretend::kernel_launches() - kernels;
  cost.copies = pretend::device_copies() - copies;
  gpu.gradients();  // waits
  return cost;
}

// 53 normalizations with three kernels forward and three backward, 54 products with gradients in 16
// bits or biases, 16 additions of two gradients.
TEST(GpuStep, OfResNet50RunsFewerThanFourHundredKernelsAndCopiesNothing) {
  const StepCost cost =
      cost_of_step(zoo::resnet50({64, 64, 3}, 5, {.width = 8, .stem = zoo::Stem::imagenet}), 2);
  EXPECT_LE(cost.kernels, 53 * 6 + 53 + 16 + 14U);
  EXPECT_EQ(cost.copies, 0U);
}

// The first proposal may not run; so says cuBLASLt only when it is asked to run it.
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
      gpu.model().train_batch(data.of(kLoss), data.context(), kLoss);
    return gpu.gradients();
  };
  const Values expected = train();
  const pretend::Machine machine({.gpus = 1, .runs_first_products = false});
  EXPECT_EQ(train(), expected);
}

}  // namespace
}  // namespace lockstep::model
