// A small module and its training loops: in one process without Lockstep, and as one of several
// ranks.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/order/batch_plan.h"
#include "lockstep/interop/torch.h"
#include "lockstep/job/session.h"

// Not within namespace lockstep, where LibTorch's macros would refer to lockstep::torch.
namespace interop_test {

namespace allreduce = lockstep::allreduce;
namespace data = lockstep::data;
namespace job = lockstep::job;
namespace interop = lockstep::interop;
using namespace lockstep::torch;

constexpr std::int64_t kGlobalBatch = 28;
constexpr std::int64_t kSamples = 100;  // three whole batches and one of 16
constexpr int kSteps = 50;

/// Pseudorandom numbers, the same in every thread and process.
inline at::Tensor numbers(at::IntArrayRef shape, double seed) {
  const at::Tensor flat = torch::arange(c10::multiply_integers(shape), torch::kDouble);
  return (flat * 12.9898 + seed * 78.233)
      .sin()
      .mul(43758.5453)
      .frac()
      .to(torch::kFloat)
      .reshape(shape);
}

inline void fill(torch::nn::Module& module, double seed) {
  const torch::NoGradGuard no_graph;
  for (at::Tensor& parameter : module.parameters())
    parameter.copy_(numbers(parameter.sizes(), seed++) * 0.5);
}

struct NetImpl : torch::nn::Module {
  explicit NetImpl(double seed = 1) { fill(*this, seed); }
  at::Tensor forward(const at::Tensor& x) { return second(torch::tanh(first(x))); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(5, 7));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(7, 1));
};
TORCH_MODULE(Net);

struct Data {
  at::Tensor inputs = numbers({kSamples, 5}, 3);
  at::Tensor targets = numbers({kSamples, 1}, 4);
};

inline data::Range batch_of(int step) {
  const std::int64_t begin = step % ((kSamples + kGlobalBatch - 1) / kGlobalBatch) * kGlobalBatch;
  return {begin, std::min(begin + kGlobalBatch, kSamples)};
}

/// Samples of part `part` of `parts` of a step's batch.
inline data::Range part_of(int step, std::int64_t parts, std::int64_t part) {
  const data::Range batch = batch_of(step);
  const data::Range range = data::split(batch.size(), parts, part);
  return {batch.begin + range.begin, batch.begin + range.end};
}

template <typename Module>
at::Tensor loss_of(Module& net, const Data& data, data::Range samples) {
  return torch::mse_loss(net.forward(data.inputs.narrow(0, samples.begin, samples.size())),
                         data.targets.narrow(0, samples.begin, samples.size()));
}

inline at::Tensor flat(const torch::nn::Module& module) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& parameter : module.parameters())
    all.push_back(parameter.detach().flatten());
  return torch::cat(all);
}

inline double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / a.abs().max()).item<double>();
}

inline torch::optim::SGD sgd(const torch::nn::Module& module) {
  return torch::optim::SGD(module.parameters(),
                           torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
}

inline at::Tensor train_alone() {
  const Data data;
  Net net;
  auto optimizer = sgd(*net);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(*net, data, batch_of(step)).backward();
    optimizer.step();
  }
  return flat(*net);
}

}  // namespace interop_test
