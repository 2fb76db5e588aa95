// Errors of the wrappers, which all ranks report.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/interop/rank_threads.h"
#include "tests/interop/torch/module_loop.h"

namespace interop_test {
namespace {

using interop::errors_of_ranks;
using job::Workers;
using ::testing::Each;
using ::testing::HasSubstr;

/// Fails in its backward pass.
struct Failing : torch::autograd::Function<Failing> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::runtime_error("no gradient today");
  }
};

/// A backward pass that ends with an exception after some gradients are complete.
void fail_backward(const at::Tensor& hidden, NetImpl& net) {
  EXPECT_THROW(net.second(Failing::apply(hidden)).sum().backward(), std::runtime_error);
}

struct Misuse {
  std::string name;
  std::function<void(DistributedOptimizer<torch::optim::SGD>&, NetImpl&, const Data&)> calls;
  std::string error;
};

class MisusedOptimizer : public ::testing::TestWithParam<Misuse> {};

TEST_P(MisusedOptimizer, ReportsTheExpectedCallOrderOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    const Data data;
    Net net;
    auto inner = sgd(*net);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    if (workers.rank() == 1) return GetParam().calls(optimizer, *net, data);
    loss_of(*net, data, {0, 4}).backward();
    optimizer.step();
    workers.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr(GetParam().error)));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, MisusedOptimizer,
    ::testing::Values(
        Misuse{"step_without_backward", [](auto& optimizer, auto&, auto&) { optimizer.step(); },
               "expected a backward pass before step()"},
        Misuse{"backward_twice",
               [](auto& optimizer, auto& net, auto& data) {
                 loss_of(net, data, {0, 4}).backward();
                 loss_of(net, data, {0, 4}).backward();
                 optimizer.step();
               },
               "expected step() after one backward pass (backward_passes_per_step); backward pass "
               "2 began before it"},
        Misuse{"gradient_changed",
               [](auto& optimizer, auto& net, auto& data) {
                 loss_of(net, data, {0, 4}).backward();
                 net.second->bias.mutable_grad().mul_(2);
                 optimizer.step();
               },
               "call synchronize() before changing them and zero_grad() after step(); the gradient "
               "of second.bias was changed"},
        Misuse{"zero_grad_too_early",
               [](auto& optimizer, auto& net, auto& data) {
                 loss_of(net, data, {0, 4}).backward();
                 optimizer.zero_grad();
               },
               "expected step() before zero_grad()"},
        Misuse{"gradients_removed",
               [](auto& optimizer, auto& net, auto& data) {
                 loss_of(net, data, {0, 4}).backward();
                 for (auto& parameter : net.parameters()) parameter.mutable_grad().reset();
                 optimizer.step();
               },
               "the gradient of first.weight was removed"},
        Misuse{"broadcast_in_mid_step",
               [](auto& optimizer, auto& net, auto& data) {
                 loss_of(net, data, {0, 4}).backward();
                 optimizer.broadcast_parameters();
               },
               "expected step() before broadcast_parameters()"},
        Misuse{"samples_below_zero",
               [](auto& optimizer, auto& net, auto& data) {
                 optimizer.set_samples(-1);
                 loss_of(net, data, {0, 4}).backward();
               },
               "expected a number of samples of at least 0, got -1"},
        Misuse{"backward_failed",
               [](auto& optimizer, auto& net, auto& data) {
                 fail_backward(net.first(data.inputs), net);
                 optimizer.zero_grad();
               },
               "[distributed_optimizer] expected backward passes to complete; the last one ended "
               "with"},
        Misuse{
            "parameters_added",
            [](auto& optimizer, auto& net, auto& data) {
              optimizer.inner().add_param_group(
                  torch::optim::OptimizerParamGroup({torch::ones({2})}));
              loss_of(net, data, {0, 4}).backward();
              optimizer.step();
            },
            "the optimizer had when it was wrapped; it had groups of 4 and now has groups of 4, 1"},
        Misuse{"converted",
               [](auto& optimizer, auto& net, auto& data) {
                 net.to(torch::kDouble);
                 net.to(torch::kFloat);
                 loss_of(net, data, {0, 4}).backward();
                 optimizer.step();
               },
               "wrap a module after its to(); first.weight was converted or moved later"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(MisusedModule, RequiresForwardOfTheWrapper) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    DistributedDataParallel net(workers, Net());
    if (workers.rank() == 1)
      loss_of(*net, Data(), {0, 4}).backward();
    else
      loss_of(net, Data(), {0, 4}).backward();
  });
  EXPECT_THAT(
      errors,
      Each(HasSubstr(
          "expected a forward pass through the wrapper before each backward pass: net(x)")));
}

TEST(MisusedModule, RequiresAForwardPassBeforeEachBackwardPass) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    DistributedDataParallel net(workers, Net());
    const at::Tensor loss = loss_of(net, Data(), {0, 4});
    for (int pass = 0; pass < 2; ++pass) loss.backward({}, /*retain_graph=*/true);
  });
  EXPECT_THAT(errors, Each(HasSubstr("the one of a retained graph counts only once")));
}

struct ModuleMisuse {
  std::string name;
  std::function<void(DistributedDataParallel<NetImpl>&, const Data&)> calls;
  std::string error;
};

class MisusedDataParallel : public ::testing::TestWithParam<ModuleMisuse> {};

// A module whose first layer is frozen when it is wrapped.
TEST_P(MisusedDataParallel, FailsOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    const Data data;
    Net frozen;
    for (at::Tensor& parameter : frozen->first->parameters()) parameter.set_requires_grad(false);
    frozen->register_buffer("seen", torch::zeros({2}));
    DistributedDataParallel net(workers, frozen);
    if (workers.rank() == 1) return GetParam().calls(net, data);
    loss_of(net, data, {0, 4}).backward();
    workers.barrier();
  });
  EXPECT_THAT(errors, Each(HasSubstr("[distributed_data_parallel] " + GetParam().error)));
}

INSTANTIATE_TEST_SUITE_P(
    Calls, MisusedDataParallel,
    ::testing::Values(
        ModuleMisuse{
            "converted",
            [](auto& net, auto& data) {
              net->to(torch::kDouble);
              net->to(torch::kFloat);
              loss_of(net, data, {0, 4});
            },
            "expected parameters to keep the type and device with which they were wrapped: wrap a "
            "module after its to(); second.weight was converted or moved later"},
        ModuleMisuse{"unfrozen",
                     [](auto& net, auto& data) {
                       net->first->weight.set_requires_grad(true);
                       loss_of(net, data, {0, 4});
                     },
                     "expected parameters that require gradients to do so when they are wrapped; "
                     "first.weight started to require them later"},
        ModuleMisuse{"backward_failed",
                     [](auto& net, auto& data) {
                       loss_of(net, data, {0, 4});
                       fail_backward(net->first(data.inputs).requires_grad_(), *net);
                       loss_of(net, data, {0, 4});
                     },
                     "expected backward passes to complete; the last one ended with an exception"},
        ModuleMisuse{"gradient_changed",
                     [](auto& net, auto& data) {
                       {
                         const auto local = net.no_sync();
                         loss_of(net, data, {0, 4}).backward();
                       }
                       net->second->weight.mutable_grad().mul_(2);
                       loss_of(net, data, {0, 4}).backward();
                     },
                     "expected gradients to stay unchanged between backward() under no_sync() and "
                     "the backward() that reduces them: call zero_grad() after it; the gradient of "
                     "second.weight was changed"},
        ModuleMisuse{"buffer_resized",
                     [](auto& net, auto& data) {
                       net->named_buffers()["seen"].resize_({3});
                       loss_of(net, data, {0, 4}).backward();
                     },
                     "expected buffers to keep the shape and type with which they were wrapped; "
                     "seen was resized"}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(WrongOptions, ForAccumulationAreRejectedByTheModule) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    DistributedDataParallel net(workers, Net(),
                                {.gradients = {.backward_passes_per_step = 1 + workers.rank()}});
  });
  EXPECT_THAT(errors, Each(HasSubstr("passes under no_sync() add up, got 2 and true")));
  EXPECT_THAT(errors_of_ranks(2,
                              [](Workers& workers) {
                                DistributedDataParallel net(
                                    workers, Net(), {.gradients = {.skip_non_finite = true}});
                              }),
              Each(HasSubstr("expected skip_non_finite with DistributedOptimizer")));
}

TEST(WrongOptimizer, LbfgsIsRejected) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    Net net;
    torch::optim::LBFGS inner(net->parameters());
    DistributedOptimizer<torch::optim::Optimizer> optimizer(workers, inner,
                                                            net->named_parameters());
  });
  EXPECT_THAT(
      errors,
      Each(HasSubstr(
          "[distributed_optimizer] expected an optimizer whose step() only updates; LBFGS")));
}

TEST(WrongOptimizer, WithDifferentGroupsFailsOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    Net net;
    const std::vector<at::Tensor> all = net->parameters();
    const auto second = all.begin() + 2 - workers.rank();
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(std::vector(all.begin(), second));
    groups.emplace_back(std::vector(second, all.end()));
    torch::optim::SGD inner(groups, 0.1);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    optimizer.broadcast_optimizer_state();
  });
  EXPECT_THAT(
      errors,
      Each(HasSubstr("rank 0 has parameter groups of 2, 2; rank 1 has parameter groups of 1, 3")));
}

/// An optimizer whose load() throws.
struct Unreadable : torch::optim::SGD {
  using SGD::SGD;
  void load(torch::serialize::InputArchive&) override {
    TORCH_CHECK(false, "made by another version");
  }
};

TEST(WrongOptimizer, WithoutLoadFailsOnAllRanks) {
  const auto errors = errors_of_ranks(2, [](Workers& workers) {
    Net net;
    Unreadable inner(net->parameters(), 0.1);
    DistributedOptimizer optimizer(workers, inner, net->named_parameters());
    optimizer.broadcast_optimizer_state();
  });
  EXPECT_THAT(errors,
              Each(HasSubstr(
                  "expected an object that LibTorch can save and load; made by another version")));
}

/// The errors of both ranks when `make` creates a wrapper; `of_rank_1` returns the parameters of
/// rank 1.
template <typename Parameters>
std::vector<std::string> errors_of_parameters(const Parameters& of_rank_1) {
  return errors_of_ranks(2, [&](Workers& workers) {
    Net net;
    auto inner = sgd(*net);
    NamedTensors::Pairs pairs = NamedTensors(net->named_parameters()).pairs();
    if (workers.rank() == 1) of_rank_1(pairs, inner);
    DistributedOptimizer optimizer(workers, inner, pairs);
  });
}

TEST(WrongParameters, FailOnAllRanks) {
  using Pairs = NamedTensors::Pairs;
  EXPECT_THAT(errors_of_parameters([](Pairs& pairs, auto&) { pairs[1].first = pairs[0].first; }),
              Each(HasSubstr("parameters 0 and 1 are both named first.weight")));
  EXPECT_THAT(errors_of_parameters([](Pairs& pairs, auto&) { pairs.pop_back(); }),
              Each(HasSubstr("expected a name for each parameter of the optimizer; its parameter 3 "
                             "of shape 1 is not among")));
  const auto foreign = [](Pairs& pairs, auto&) {
    pairs.emplace_back("other", torch::ones({2}).requires_grad_());
  };
  EXPECT_THAT(
      errors_of_parameters(foreign),
      Each(HasSubstr("expected only parameters of the optimizer; other is not one of them")));
  EXPECT_THAT(errors_of_parameters([](Pairs& pairs, auto& inner) {
                pairs.emplace_back("half", torch::ones({2}, torch::kHalf).requires_grad_());
                inner.add_parameters({pairs.back().second});
              }),
              Each(HasSubstr("expected float32 or float64 parameters; half is Half")));
}

TEST(WrongParameters, OfADifferentModelAreNamed) {
  const auto errors = errors_of_ranks(3, [](Workers& workers) {
    torch::nn::Linear net(4, workers.rank() == 2 ? 3 : 2);
    DistributedDataParallel wrapper(workers, net);
  });
  EXPECT_THAT(errors, Each(HasSubstr("weight [2, 4] on replica 0 and weight [3, 4] on replica 2")));
}

}  // namespace
}  // namespace interop_test
