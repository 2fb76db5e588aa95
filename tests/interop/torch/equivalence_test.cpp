#include "lockstep/interop/equivalence.h"

#include <gtest/gtest.h>

#include "lockstep/interop/torch.h"
#include "tests/interop/rank_threads.h"
#include "tests/interop/torch/module_loop.h"

namespace interop_test {
namespace {

using interop::Mistake;

/// Trains a network, with or without batch normalization, on batches of 12 and 7 samples.
void train(job::Workers& workers, bool is_normalized) {
  ::torch::nn::Sequential net(::torch::nn::Linear(5, 6));
  if (is_normalized) net->push_back(::torch::nn::BatchNorm1d(6));
  net->push_back(::torch::nn::ReLU());
  net->push_back(::torch::nn::Linear(6, 1));
  {
    // Not by the generator of the process, which the ranks of this test share.
    const ::torch::NoGradGuard no_graph;
    double seed = 0;
    for (at::Tensor& parameter : net->parameters())
      parameter.copy_(numbers(parameter.sizes(), seed += 0.3) - 0.5);
  }
  ::torch::optim::SGD sgd(net->parameters(), 0.05);
  DistributedOptimizer optimizer(workers, sgd, net->named_parameters());
  optimizer.broadcast_parameters();
  for (const std::int64_t samples : {12, 7}) {
    const at::Tensor x = numbers({samples, 5}, 0.1);
    const at::Tensor y = numbers({samples, 1}, 0.7);
    const std::int64_t begin = samples * workers.rank() / workers.size();
    const std::int64_t end = samples * (workers.rank() + 1) / workers.size();
    optimizer.zero_grad();
    optimizer.set_samples(end - begin);
    ::torch::nn::functional::mse_loss(net->forward(x.slice(0, begin, end)), y.slice(0, begin, end))
        .backward();
    optimizer.step();
  }
}

interop::EquivalenceResult found(bool is_normalized) {
  interop::EquivalenceResult first;
  interop::run_ranks(2, [&](job::Workers& workers) {
    const auto result = interop::verify_equivalence(workers, [&](job::Workers& some) {
      train(some, is_normalized);
      return interop::StepLosses();
    });
    if (workers.rank() == 0) first = result;
  });
  return first;
}

TEST(VerifyTorchLoop, FindsNothingInARightLoop) { EXPECT_EQ(found(false).text(), ""); }

TEST(VerifyTorchLoop, NamesBatchNormalization) {
  const auto result = found(true);
  EXPECT_EQ(result.mistake, Mistake::batch_statistics) << result.text();
}

}  // namespace
}  // namespace interop_test
