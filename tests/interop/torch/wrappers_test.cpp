#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/interop/rank_threads.h"
#include "tests/interop/torch/module_loop.h"

namespace interop_test {
namespace {

using interop::run_ranks;
using job::Workers;

class Equivalence : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Equivalence, OptimizerEqualsOneProcess) {
  const auto [ranks, passes] = GetParam();
  const at::Tensor alone = train_alone();
  run_ranks(ranks, [&, passes = passes](Workers& workers) {
    const Data data;
    Net net(1.0 + workers.rank());
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters(),
                                   {.backward_passes_per_step = passes});
    optimizer.broadcast_parameters();
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      for (int pass = 0; pass < passes; ++pass) {
        const auto part = part_of(step, workers.size() * passes, workers.rank() * passes + pass);
        optimizer.set_samples(part.size());
        loss_of(*net, data, part).backward();
      }
      EXPECT_TRUE(optimizer.step());
    }
    EXPECT_LT(difference(alone, flat(*net)), 1e-6) << "rank " << workers.rank();
    EXPECT_EQ(optimizer.reducer().buckets().launched(),
              optimizer.reducer().buckets().buckets().size() * kSteps);
  });
}

TEST_P(Equivalence, ModuleEqualsOneProcess) {
  const auto [ranks, passes] = GetParam();
  const at::Tensor alone = train_alone();
  run_ranks(ranks, [&, passes = passes](Workers& workers) {
    const Data data;
    DistributedDataParallel net(workers, Net(1.0 + workers.rank()));
    auto optimizer = sgd(*net);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const auto pass = [&](int number) {
        const auto part = part_of(step, workers.size() * passes, workers.rank() * passes + number);
        (loss_of(net, data, part) / passes).backward();
      };
      {
        const auto local = net.no_sync();
        for (int number = 0; number + 1 < passes; ++number) pass(number);
      }
      pass(passes - 1);
      optimizer.step();
    }
    EXPECT_LT(difference(alone, flat(*net)), 1e-6) << "rank " << workers.rank();
    EXPECT_EQ(net.reducer().buckets().launched(),
              net.reducer().buckets().buckets().size() * kSteps);
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, Equivalence,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(1, 2, 4, 7)),
                         [](const auto& param_info) {
                           return std::to_string(std::get<0>(param_info.param)) + "_ranks_" +
                                  std::to_string(std::get<1>(param_info.param)) + "_passes";
                         });

// The gradients of a small module on two ranks after `loop`.
using Loop = std::function<void(DistributedDataParallel<NetImpl>&, const Data&, int)>;
void expect_gradient_of_one_process(const std::function<void(NetImpl&, const Data&)>& alone,
                                    const Loop& loop) {
  const Data data;
  Net net;
  alone(*net, data);
  const at::Tensor expected = net->first->weight.grad();
  run_ranks(2, [&](Workers& workers) {
    DistributedDataParallel ours(workers, Net());
    loop(ours, data, workers.rank());
    EXPECT_LT(difference(expected, ours->first->weight.grad()), 1e-6);
  });
}

TEST(DistributedDataParallel, AccumulatesGradientsThatAreNotCleared) {
  expect_gradient_of_one_process(
      [](NetImpl& net, const Data& data) {
        loss_of(net, data, {0, 10}).backward();
        loss_of(net, data, {10, 13}).backward();
      },
      [](auto& net, const Data& data, int rank) {
        loss_of(net, data, rank == 0 ? data::Range{0, 3} : data::Range{3, 10}).backward();
        loss_of(net, data, rank == 0 ? data::Range{10, 12} : data::Range{12, 13}).backward();
      });
}

TEST(DistributedDataParallel, AccumulatesFromZeroedGradients) {
  expect_gradient_of_one_process(
      [](NetImpl& net, const Data& data) {
        loss_of(net, data, {10, 13}).backward();
      },
      [](auto& net, const Data& data, int) {
        loss_of(net, data, {0, 10}).backward();
        for (auto& parameter : net->parameters()) parameter.mutable_grad().zero_();
        loss_of(net, data, {10, 13}).backward();
      });
}

TEST(DistributedDataParallel, AveragesASampleOfOneRank) {
  expect_gradient_of_one_process(
      [](NetImpl& net, const Data& data) {
        loss_of(net, data, {0, 1}).backward();
      },
      [](auto& net, const Data& data, int rank) {
        loss_of(net, data, rank == 0 ? data::Range{0, 0} : data::Range{0, 1}).backward();
      });
}

TEST(DistributedDataParallel, HasGradientsThatViewTheBuckets) {
  run_ranks(2, [](Workers& workers) {
    at::Tensor weight, values;
    const float* memory = nullptr;
    {
      DistributedDataParallel net(workers, Net());
      loss_of(net, Data(), {0, 8}).backward();
      weight = net->first->weight;
      values = weight.grad().clone();
      memory = net.reducer().gradient(0).data();
      EXPECT_EQ(weight.grad().data_ptr<float>(), memory);
    }
    EXPECT_EQ(weight.grad().data_ptr<float>(), memory);  // stays the same
    EXPECT_TRUE(torch::equal(weight.grad(), values));
  });
}

TEST(DistributedDataParallel, IgnoresPassesWithoutSamples) {
  const auto penalized = [](auto& net, const Data& data, data::Range part,
                            const at::Tensor& weight) {
    return loss_of(net, data, part) + 0.1 * weight.square().sum();
  };
  expect_gradient_of_one_process(
      [&](NetImpl& net, const Data& data) {
        for (int pass = 0; pass < 2; ++pass)
          penalized(net, data, {0, 12}, net.first->weight).backward();
      },
      [&](auto& net, const Data& data, int rank) {
        {
          const auto local = net.no_sync();
          penalized(net, data, {rank * 4, rank * 4 + 4}, net->first->weight).backward();
        }
        penalized(net, data, rank == 0 ? data::Range{8, 12} : data::Range{12, 12},
                  net->first->weight)
            .backward();
      });
}

TEST(DistributedDataParallel, AccumulatesPassesWithCreateGraph) {
  expect_gradient_of_one_process(
      [](NetImpl& net, const Data& data) {
        loss_of(net, data, {0, 10}).backward();
        loss_of(net, data, {10, 20}).backward();
      },
      [](auto& net, const Data& data, int rank) {
        const auto pass = [&](std::int64_t begin) {
          loss_of(net, data, {begin, begin + 5})
              .backward({}, /*retain_graph=*/true, /*create_graph=*/true);
        };
        {
          const auto local = net.no_sync();
          pass(rank * 5);
        }
        pass(10 + rank * 5);
      });
}

TEST(DistributedDataParallel, SavesTheModuleInItsOwnFormat) {
  std::stringstream stream;
  run_ranks(1, [&](Workers& workers) {
    DistributedDataParallel net(workers, Net(9));
    torch::save(net, stream);
  });
  Net alone;
  torch::load(alone, stream);
  EXPECT_EQ(difference(flat(*Net(9)), flat(*alone)), 0);
}

TEST(DistributedOptimizer, ClipsReducedGradients) {
  const Data data;
  Net alone;
  loss_of(*alone, data, {0, 20}).backward();
  const double norm = torch::nn::utils::clip_grad_norm_(alone->parameters(), 0.01);
  run_ranks(2, [&](Workers& workers) {
    Net net;
    torch::optim::SGD inner(net->parameters(), 1.0);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters(), {.clip_norm = 0.01});
    loss_of(*net, data, {workers.rank() * 10, workers.rank() * 10 + 10}).backward();
    optimizer.synchronize();
    EXPECT_NEAR(optimizer.gradient_norm(), norm, 1e-6 * norm);
    EXPECT_LT(difference(alone->first->weight.grad(), net->first->weight.grad()), 1e-5);
    optimizer.step();
  });
}

TEST(DistributedOptimizer, NamesRanksWithNonFiniteGradients) {
  ::testing::internal::CaptureStderr();
  run_ranks(3, [&](Workers& workers) {
    const Data data;
    Net net(1.0);
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters(),
                                   {.skip_non_finite = true});
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      at::Tensor loss = loss_of(*net, data, part_of(step, workers.size(), workers.rank()));
      if (step == 1 && workers.rank() > 0) loss = loss / 0.0;
      loss.backward();
      EXPECT_EQ(optimizer.step(), step != 1) << step;
    }
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: step 2 skipped: non-finite gradient on rank 1, 2\n");
}

TEST(DistributedOptimizer, CommunicatesInSixteenBits) {
  const Data data;
  Net alone;
  loss_of(*alone, data, {0, 20}).backward();
  run_ranks(2, [&](Workers& workers) {
    Net net;
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters(),
                                   {.compression = allreduce::WireType::bfloat16});
    loss_of(*net, data, {workers.rank() * 10, workers.rank() * 10 + 10}).backward();
    optimizer.synchronize();
    const double error = difference(alone->first->weight.grad(), net->first->weight.grad());
    EXPECT_GT(error, 1e-6);
    EXPECT_LT(error, 1e-2);
  });
}

TEST(DistributedOptimizer, FlushesRemainingPassesAsOneStep) {
  const Data data;
  Net alone;
  loss_of(*alone, data, {0, 12}).backward();
  run_ranks(2, [&](Workers& workers) {
    Net net;
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters(),
                                   {.backward_passes_per_step = 3});
    EXPECT_FALSE(optimizer.flush());
    optimizer.set_samples(6);
    loss_of(*net, data, {workers.rank() * 6, workers.rank() * 6 + 6}).backward();
    EXPECT_TRUE(optimizer.flush());
    EXPECT_EQ(optimizer.samples(), 12);
    EXPECT_LT(difference(alone->first->weight.grad(), net->first->weight.grad()), 1e-6);
  });
}

TEST(DistributedOptimizer, SumsRemainingPassesEquallyOnAllRanks) {
  const Data data;
  Net alone;
  loss_of(*alone, data, {0, 12}).backward();
  run_ranks(2, [&](Workers& workers) {
    Net net;
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters(),
                                   {.backward_passes_per_step = 3, .average_passes = false});
    optimizer.set_samples(4);
    const int first = workers.rank() == 0 ? 0 : 2;
    for (int pass = first; pass < (workers.rank() == 0 ? 2 : 3); ++pass)
      loss_of(*net, data, {pass * 4, pass * 4 + 4}).backward();
    EXPECT_TRUE(optimizer.flush());
    EXPECT_LT(difference(alone->first->weight.grad() * 1.5, net->first->weight.grad()), 1e-6);
  });
}

TEST(DistributedOptimizer, AcceptsATensorWithTwoNames) {
  const Data data;
  torch::nn::Linear alone(5, 1);
  fill(*alone, 1);
  torch::optim::SGD plain({alone->weight, alone->weight}, 0.1);
  loss_of(*alone, data, {0, 10}).backward();
  plain.step();
  run_ranks(2, [&](Workers& workers) {
    torch::nn::Linear net(5, 1);
    fill(*net, 1);
    torch::optim::SGD inner({net->weight, net->weight}, 0.1);
    DistributedOptimizer optimizer(
        workers, inner, NamedTensors::Pairs{{"encoder", net->weight}, {"decoder", net->weight}});
    loss_of(*net, data, {workers.rank() * 5, workers.rank() * 5 + 5}).backward();
    optimizer.step();
    EXPECT_LT(difference(alone->weight.detach(), net->weight.detach()), 1e-6);
  });
}

TEST(DistributedOptimizer, RemovesStateThatTheRootDoesNotHave) {
  run_ranks(2, [](Workers& workers) {
    const Data data;
    Net net;
    auto inner = sgd(*net);
    if (workers.rank() == 1) {
      loss_of(*net, data, {0, 10}).backward();
      inner.step();
    }
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    optimizer.broadcast_optimizer_state();
    EXPECT_EQ(inner.state().size(), 0U);
  });
}

TEST(DistributedOptimizer, BroadcastsOptimizerStateAndOptions) {
  const Data data;
  Net alone;
  torch::optim::Adam adam(alone->parameters(), 0.05);
  for (int step = 0; step < 3; ++step) {
    adam.zero_grad();
    loss_of(*alone, data, {0, 10}).backward();
    adam.step();
  }
  run_ranks(2, [&](Workers& workers) {
    Net net;
    torch::optim::Adam inner(net->parameters(), workers.rank() == 1 ? 0.05 : 7.0);
    for (int step = 0; step < 2 && workers.rank() == 1; ++step) {
      inner.zero_grad();
      loss_of(*net, data, {0, 10}).backward();
      inner.step();
    }
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    optimizer.broadcast_parameters(1);
    optimizer.broadcast_optimizer_state(1);
    optimizer.zero_grad();
    loss_of(*net, data, {workers.rank() * 5, workers.rank() * 5 + 5}).backward();
    optimizer.step();
    EXPECT_LT(difference(flat(*alone), flat(*net)), 1e-6);
  });
}

/// Two branches and a layer that is never used.
struct BranchesImpl : torch::nn::Module {
  BranchesImpl() { fill(*this, 1); }
  at::Tensor forward(const at::Tensor& x, bool use_left) { return use_left ? left(x) : right(x); }

  torch::nn::Linear left = register_module("left", torch::nn::Linear(5, 1));
  torch::nn::Linear right = register_module("right", torch::nn::Linear(5, 1));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(5, 1));
};
TORCH_MODULE(Branches);

at::Tensor branch_loss(BranchesImpl& net, const at::Tensor& outputs, const Data& data,
                       data::Range part) {
  static_cast<void>(net);
  return torch::mse_loss(outputs, data.targets.narrow(0, part.begin, part.size()));
}

// The branch of samples 0 .. 5 (`half` 0) or 6 .. 11 (1) in a step.
bool goes_left(int step, int half) {
  return step % 3 == 2 ? step % 2 == 0 : (step + half) % 2 == 0;
}

TEST(MissingGradients, CountAsZeroAndEqualOneProcess) {
  const Data data;
  const auto half_of = [](int half) { return data::Range{half * 6, half * 6 + 6}; };
  Branches alone;
  auto plain = sgd(*alone);
  for (int step = 0; step < 12; ++step) {
    for (auto& parameter : alone->parameters()) parameter.mutable_grad().reset();
    for (int half = 0; half < 2; ++half) {
      const auto part = half_of(half);
      const auto outputs =
          alone->forward(data.inputs.narrow(0, part.begin, part.size()), goes_left(step, half));
      (branch_loss(*alone, outputs, data, part) / 2).backward();
    }
    plain.step();
  }
  run_ranks(2, [&](Workers& workers) {
    const auto part = half_of(workers.rank());
    const at::Tensor inputs = data.inputs.narrow(0, part.begin, part.size());
    DistributedDataParallel module(workers, Branches());
    auto first = sgd(*module);
    Branches net;
    auto second = sgd(*net);
    DistributedOptimizer optimizer(workers, second, net->named_parameters());
    for (int step = 0; step < 12; ++step) {
      const bool left = goes_left(step, workers.rank());
      for (auto& parameter : module->parameters()) parameter.mutable_grad().reset();
      branch_loss(*module, module(inputs, left), data, part).backward();
      first.step();
      optimizer.zero_grad();
      branch_loss(*net, net->forward(inputs, left), data, part).backward();
      optimizer.step();
    }
    EXPECT_FALSE(net->unused->weight.grad().defined());
    EXPECT_LT(difference(flat(*alone), flat(*module)), 1e-6);
    EXPECT_LT(difference(flat(*alone), flat(*net)), 1e-6);
  });
}

TEST(MissingGradients, StayZeroIfTheyWereZeroed) {
  run_ranks(2, [](Workers& workers) {
    const at::Tensor inputs = Data().inputs.narrow(0, 0, 4);
    Branches net;
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    net->forward(inputs, true).sum().backward();
    optimizer.step();
    optimizer.zero_grad(/*set_to_none=*/false);
    ASSERT_TRUE(net->left->weight.grad().defined());
    EXPECT_EQ(net->left->weight.grad().abs().sum().item<float>(), 0);
    EXPECT_FALSE(net->right->weight.grad().defined());
    net->forward(inputs, false).sum().backward();
    optimizer.step();
    EXPECT_EQ(net->left->weight.grad().abs().sum().item<float>(), 0);
    EXPECT_GT(net->right->weight.grad().abs().sum().item<float>(), 0);
  });
}

/// Returns an undefined gradient for its input.
struct WithoutGradient : torch::autograd::Function<WithoutGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {at::Tensor()};
  }
};

TEST(MissingGradients, MayBeUndefinedInACustomFunction) {
  run_ranks(2, [](Workers& workers) {
    const at::Tensor weight = torch::ones({2}).requires_grad_();
    torch::optim::SGD inner({weight}, 0.1);
    DistributedOptimizer optimizer(workers, inner, NamedTensors::Pairs{{"weight", weight}});
    (workers.rank() == 0 ? WithoutGradient::apply(weight) : weight * 4).sum().backward();
    optimizer.synchronize();
    EXPECT_TRUE(torch::equal(weight.grad(), torch::full({2}, 2.0F)));
    optimizer.step();
  });
}

TEST(SparseGradients, BecomeDense) {
  run_ranks(2, [](Workers& workers) {
    torch::nn::Embedding embedding(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel net(workers, embedding);
    net(torch::tensor({static_cast<std::int64_t>(workers.rank()), std::int64_t{2}}))
        .sum()
        .backward();
    const at::Tensor expected =
        torch::tensor({0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 0.0, 0.0}).reshape({4, 2});
    EXPECT_TRUE(torch::equal(embedding->weight.grad(), expected.to(torch::kFloat)));
  });
}

struct BuffersCase {
  BufferSync sync;
  std::vector<double> means;          // expected running mean by rank
  std::vector<std::int64_t> batches;  // expected number of tracked batches by rank
};

class Buffers : public ::testing::TestWithParam<BuffersCase> {};

TEST_P(Buffers, FollowTheOption) {
  run_ranks(2, [](Workers& workers) {
    const auto rank = static_cast<std::size_t>(workers.rank());
    torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(1).momentum(1.0));
    norm->running_mean.fill_(5 + workers.rank());
    DistributedDataParallel net(workers, norm, {.buffers = GetParam().sync});
    EXPECT_EQ(norm->running_mean.item<double>(), 5);
    norm->num_batches_tracked.fill_(workers.rank() * 7);
    // The means are 1 (2 samples) and 4 (4 samples).
    const std::vector<float> values =
        workers.rank() == 0 ? std::vector<float>{0, 2} : std::vector<float>{2, 6, 3, 5};
    net(torch::tensor(values).reshape({-1, 1})).sum().backward();
    EXPECT_NEAR(norm->running_mean.item<double>(), GetParam().means[rank], 1e-6);
    EXPECT_EQ(norm->num_batches_tracked.item<std::int64_t>(), GetParam().batches[rank]);
  });
}

INSTANTIATE_TEST_SUITE_P(Options, Buffers,
                         ::testing::Values(BuffersCase{BufferSync::broadcast, {1, 1}, {1, 1}},
                                           BuffersCase{BufferSync::average, {3, 3}, {8, 8}},
                                           BuffersCase{BufferSync::none, {1, 4}, {1, 8}}));

TEST(Buffers, AreThoseOfTheFirstRankWithSamples) {
  run_ranks(3, [](Workers& workers) {
    torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(1).momentum(1.0));
    DistributedDataParallel net(workers, norm);
    // Parts of two samples: the first rank has none.
    const std::vector<float> values =
        workers.rank() == 0 ? std::vector<float>{} : std::vector<float>{2, 6};
    net(torch::tensor(values).reshape({-1, 1}) * workers.rank()).sum().backward();
    EXPECT_EQ(norm->running_mean.item<double>(), 4);
    EXPECT_EQ(norm->running_var.item<double>(), 8);
  });
}

TEST(Buffers, AreBroadcastByBroadcastTensors) {
  run_ranks(2, [](Workers& workers) {
    torch::nn::BatchNorm1d norm(3);
    norm->running_mean.fill_(workers.rank() + 1);
    broadcast_tensors(workers, norm->named_buffers(), 1);
    EXPECT_TRUE(torch::equal(norm->running_mean, torch::full({3}, 2.0F)));
  });
}

// Test vectors of DDP (sizes in MiB .4 .4 .4 10 10 10 1 30 .1, caps 1 and 25: [0 1 2] [3 4 5] [6 7]
// [8]). Same rule, but in the order in which the backward pass completes parameters, last one
// first.
TEST(Buckets, FollowTheSizeRuleOfDdpFromTheLastParameter) {
  const std::vector<double> mebibytes{.1, 30, 1, 10, 10, 10, .4, .4, .4};
  run_ranks(1, [&](Workers& workers) {
    NamedTensors::Pairs parameters;
    std::vector<at::Tensor> tensors;
    for (const double size : mebibytes) {
      tensors.push_back(
          torch::empty({static_cast<std::int64_t>(size * (1 << 18))}).requires_grad_());
      parameters.emplace_back("p" + std::to_string(tensors.size()), tensors.back());
    }
    torch::optim::SGD inner(tensors, 0.1);
    DistributedOptimizer optimizer(workers, inner, parameters);
    std::vector<std::size_t> entries;
    for (const auto& bucket : optimizer.reducer().buckets().buckets())
      entries.push_back(bucket.entries);
    EXPECT_EQ(entries[0], 3);
    EXPECT_EQ(entries[1], 3);
    EXPECT_EQ(entries[2], 2);
    EXPECT_EQ(entries[3], 2);  // including the piggybacked counts
  });
}

}  // namespace
}  // namespace interop_test
