// Algorithms that the libraries of a GPU propose but refuse to run, as simulated GPUs do.
#include <gtest/gtest.h>

#include <memory>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/sides.h"
#include "tests/support/pretend_cuda/machine.h"

namespace lockstep::model {
namespace {

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
