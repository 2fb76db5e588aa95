// float64 parameters in the wrappers are reduced without rounding to float32.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/interop/rank_threads.h"
#include "tests/interop/torch/module_loop.h"

namespace interop_test {
namespace {

using interop::run_ranks;
using job::Workers;

Data wide_data() {
  Data data;
  data.inputs = data.inputs.to(torch::kDouble);
  data.targets = data.targets.to(torch::kDouble);
  return data;
}

Net wide_net(double seed = 1) {
  Net net(seed);
  net->to(torch::kDouble);
  return net;
}

at::Tensor train_wide_alone() {
  const Data data = wide_data();
  Net net = wide_net();
  auto optimizer = sgd(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(*net, data, batch_of(step)).backward();
    optimizer.step();
  }
  return flat(*net);
}

class Float64 : public ::testing::TestWithParam<int> {};

TEST_P(Float64, OptimizerEqualsOneProcess) {
  const at::Tensor alone = train_wide_alone();
  run_ranks(GetParam(), [&](Workers& workers) {
    const Data data = wide_data();
    Net net = wide_net(1.0 + workers.rank());
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    optimizer.broadcast_parameters();
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto part = part_of(step, workers.size(), workers.rank());
      optimizer.set_samples(part.size());
      loss_of(*net, data, part).backward();
      EXPECT_TRUE(optimizer.step());
    }
    EXPECT_LT(difference(alone, flat(*net)), 1e-13) << "rank " << workers.rank();
  });
}

TEST_P(Float64, ModuleEqualsOneProcess) {
  const at::Tensor alone = train_wide_alone();
  run_ranks(GetParam(), [&](Workers& workers) {
    const Data data = wide_data();
    DistributedDataParallel net(workers, wide_net(1.0 + workers.rank()));
    auto optimizer = sgd(*net);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto pass = [&](int number) {
        const auto part = part_of(step, workers.size() * 2, workers.rank() * 2 + number);
        (loss_of(net, data, part) / 2).backward();
      };
      {
        const auto local = net.no_sync();
        pass(0);
      }
      pass(1);
      optimizer.step();
    }
    EXPECT_LT(difference(alone, flat(*net)), 1e-13) << "rank " << workers.rank();
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Float64, ::testing::Values(1, 2, 3));

/// A float32 layer and a float64 layer.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    fill(*this, 1);
    second->to(torch::kDouble);
  }
  at::Tensor forward(const at::Tensor& x) {
    return second(torch::tanh(first(x)).to(torch::kDouble));
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 7));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(7, 1));
};
TORCH_MODULE(Mixed);

TEST(MixedTypes, AreClippedTogetherAndKeepTheirTypes) {
  const auto loss = [](MixedImpl& net, data::Range samples) {
    const Data data;
    return torch::mse_loss(
        net.forward(data.inputs.narrow(0, samples.begin, samples.size())),
        data.targets.narrow(0, samples.begin, samples.size()).to(torch::kDouble));
  };
  Mixed alone;
  loss(*alone, {0, 20}).backward();
  double squares = 0;
  for (const at::Tensor& parameter : alone->parameters())
    squares += parameter.grad().to(torch::kDouble).square().sum().item<double>();
  run_ranks(2, [&](Workers& workers) {
    Mixed net;
    torch::optim::SGD inner(net->parameters(), 1.0);
    DistributedOptimizer optimizer(
        workers, inner, net->named_parameters(),
        {.compression = allreduce::WireType::bfloat16, .clip_norm = 0.01});
    loss(*net, {workers.rank() * 10, workers.rank() * 10 + 10}).backward();
    optimizer.synchronize();
    EXPECT_NEAR(optimizer.gradient_norm(), std::sqrt(squares), 1e-2 * std::sqrt(squares));
    const double factor = 0.01 / optimizer.gradient_norm();
    const at::Tensor wide = net->second->weight.grad();
    EXPECT_EQ(wide.scalar_type(), torch::kDouble);
    EXPECT_EQ(wide.data_ptr<double>(), optimizer.reducer().gradient<double>(2).data());
    EXPECT_EQ(net->first->weight.grad().scalar_type(), torch::kFloat);
    // The previous layer rounds its output to float32, but bfloat16 would be off by 1e-3.
    EXPECT_LT(difference(alone->second->weight.grad() * factor, wide), 1e-6);
    optimizer.step();
  });
}

}  // namespace
}  // namespace interop_test
