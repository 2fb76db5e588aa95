// Modules and TorchScript files as layers: in a Trainer, and by themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/sample/record_source.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/interop/torch/module_loop.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace interop_test {
namespace {

namespace checkpoint = lockstep::checkpoint;
namespace device = lockstep::device;
namespace model = lockstep::model;
namespace strategy = lockstep::strategy;
using lockstep::allreduce::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ClassifierImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return last(torch::relu(first(x))); }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(16, 12));
  torch::nn::Linear last =
      register_module("last", torch::nn::Linear(12, lockstep::train::kClasses));
};
TORCH_MODULE(Classifier);

/// A module with all kinds of state: statistics, their count, and random numbers.
struct RegularizedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    return last(torch::dropout(torch::relu(norm(first(x))), 0.3, is_training()));
  }

  torch::nn::Linear first = register_module("first", torch::nn::Linear(16, 12));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(12));
  torch::nn::Linear last =
      register_module("last", torch::nn::Linear(12, lockstep::train::kClasses));
};
TORCH_MODULE(Regularized);

template <typename Holder>
model::Network network_of(const model::Shape& input = {16}) {
  model::Network network(input, "module");
  network.add(ModuleLayer([] { return Holder(); }));
  return network;
}

/// The module after training by LibTorch alone, with the same samples and SGD.
Classifier trained_by_libtorch(const data::Dataset& dataset, std::int64_t batch, int epochs) {
  torch::manual_seed(5);
  Classifier net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  data::Batch one(dataset.spec());
  data::Sample sample = one.sample();
  for (std::int64_t i = 0; i < epochs * dataset.size(); i += batch) {
    std::vector<float> features;
    std::vector<std::int64_t> labels;
    for (std::int64_t k = i; k < i + batch; ++k) {
      dataset.source().read(k % dataset.size(), sample);
      features.insert(features.end(), sample.features().begin(), sample.features().end());
      labels.push_back(sample.label());
    }
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(net(torch::tensor(features).reshape({batch, 16})),
                                         torch::tensor(labels))
        .backward();
    optimizer.step();
  }
  return net;
}

TEST(ModuleLayer, TrainsLikeLibTorchOnAnyNumberOfReplicas) {
  const data::Dataset dataset = lockstep::train::small_data(80);
  const Classifier expected = trained_by_libtorch(dataset, 40, 2);
  for (const int replicas : {1, 3}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto local = lockstep::train::local_strategy(session, replicas);
    lockstep::train::Trainer trainer(
        *local, network_of<Classifier>(),
        {.optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}, .seed = 5});
    trainer.fit(dataset.batch(40), {.epochs = 2});
    model::CompiledModel& ours = trainer.replicas()[0].model();
    for (const auto& item : expected->named_parameters()) {
      const model::ParameterInfo* entry = ours.parameter_table().find("torch/" + item.key());
      ASSERT_NE(entry, nullptr) << item.key();
      const auto values = model::ParameterTable::slice(ours.parameters(), *entry);
      const at::Tensor trained = torch::from_blob(values.data(), item.value().sizes());
      EXPECT_LT((trained - item.value()).abs().max().item<double>(), 1e-5)
          << item.key() << " of " << replicas;
    }
  }
}

TEST(ModuleLayer, ResumesExactly) {
  for (const int replicas : {1, 2}) {
    const auto outcome = [&](const checkpoint::ScratchDirectory& directory, std::int64_t steps) {
      lockstep::train::FitOptions fit{.epochs = 3, .steps = steps};
      fit.checkpoint.directory = directory.path();
      fit.checkpoint.save_every = 7;
      return lockstep::train::train(replicas, network_of<Regularized>(),
                                    lockstep::train::small_data(200).shuffle().batch(40),
                                    {.optimizer = model::Adam{}}, fit);
    };
    const checkpoint::ScratchDirectory straight, interrupted;
    const lockstep::train::Outcome expected = outcome(straight, 0);
    outcome(interrupted, 7);
    const lockstep::train::Outcome resumed = outcome(interrupted, 0);
    EXPECT_EQ(resumed.losses.size(), 8U);
    EXPECT_EQ(resumed.parameter_hash, expected.parameter_hash) << replicas;
    EXPECT_EQ(resumed.buffers, expected.buffers) << replicas;
    const model::Network network = network_of<Regularized>();
    const model::ParameterInfo* passes = network.buffers().find("torch/norm.num_batches_tracked");
    ASSERT_NE(passes, nullptr);
    EXPECT_EQ(resumed.buffers[passes->offset], 15);
  }
}

TEST(ModuleLayer, ReadsTorchScript) {
  const checkpoint::ScratchDirectory directory;
  std::filesystem::create_directories(directory.path());
  const std::filesystem::path file = directory.path() / "linear.pt";
  torch::jit::Module script("Linear");
  script.register_parameter("weight",
                            torch::full({lockstep::train::kClasses, 16}, 0.25).requires_grad_(),
                            /*is_buffer=*/false);
  script.define("def forward(self, x):\n    return torch.matmul(x, torch.t(self.weight))\n");
  script.save(file.string());
  model::Network network({16}, "scripted");
  network.add(ModuleLayer(file));

  device::HostAllocator gradients;
  model::CompiledModel compiled(std::make_shared<const model::Network>(network), device::Device{},
                                gradients);
  compiled.initialize(3);
  EXPECT_EQ(compiled.parameters()[0], 0.25F);
  EXPECT_THAT(compiled.predict_batch(1, std::vector<float>(16, 1.0F)), ElementsAre(4, 4, 4, 4));

  const auto train_on = [&](int replicas) {
    return lockstep::train::train(replicas, network, lockstep::train::small_data(200).batch(40),
                                  {.optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}},
                                  {.epochs = 2});
  };
  const lockstep::train::Outcome one = train_on(1), three = train_on(3);
  EXPECT_LT(one.losses.back(), one.losses.front());
  ASSERT_EQ(one.parameters.size(), three.parameters.size());
  for (std::size_t i = 0; i < one.parameters.size(); ++i)
    EXPECT_NEAR(one.parameters[i], three.parameters[i], 1e-5F) << i;
}

/// The second channel of an image.
struct SecondChannelImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return (x.select(1, 1) * factor).flatten(1); }
  at::Tensor factor = register_parameter("factor", torch::full({1}, 2.0F));
};
TORCH_MODULE(SecondChannel);

TEST(ModuleLayer, ReceivesImagesWithChannelsFirst) {
  device::HostAllocator gradients;
  model::CompiledModel compiled(
      std::make_shared<const model::Network>(network_of<SecondChannel>({2, 2, 3})),
      device::Device{}, gradients);
  compiled.initialize(1);
  const std::vector<float> pixels{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  EXPECT_THAT(compiled.predict_batch(1, pixels), ElementsAre(2, 8, 14, 20));
}

TEST(ModuleLayer, PropagatesGradientsToPreviousLayers) {
  model::Network network({3});
  network.add(model::Dense({.units = 5}));
  network.add(ModuleLayer(
      [] { return torch::nn::Sequential(torch::nn::Tanh(), torch::nn::Linear(5, 2)); }));
  device::HostAllocator gradients;
  model::CompiledModel compiled(std::make_shared<const model::Network>(network), device::Device{},
                                gradients);
  compiled.initialize(1);
  const std::vector<float> features{0.5F, -1, 0.25F, 2, 0.75F, -0.5F};
  const std::vector<float> targets{1, -1, 0.5F, 2};
  const auto loss = [&] {
    return compiled
        .train_batch({.samples = 2, .features = features, .targets = {.values = targets}},
                     {.global_samples = 2}, model::MeanSquaredError{})
        .loss();
  };
  loss();
  const std::vector<float> computed(compiled.gradients().begin(), compiled.gradients().end());
  for (const model::ParameterInfo& entry : compiled.parameter_table().entries()) {
    constexpr float kStep = 1e-2F;
    float& value = compiled.parameters()[entry.offset];
    const float before = value;
    value = before + kStep;
    const double above = loss();
    value = before - kStep;
    const double below = loss();
    value = before;
    EXPECT_NEAR(computed[entry.offset], (above - below) / (2 * kStep), 2e-3) << entry.name;
  }
}

TEST(ModuleLayer, FreezesStatisticsToo) {
  model::Network network = network_of<Regularized>();
  network.add(model::Dense({.units = lockstep::train::kClasses}));
  const auto trained = [&](std::int64_t epochs) {
    return lockstep::train::train(1, network, lockstep::train::shuffled_data(),
                                  {.freeze = {"torch/*"}}, {.epochs = epochs});
  };
  const lockstep::train::Outcome one = trained(1), two = trained(2);
  EXPECT_EQ(one.buffers, two.buffers);
  EXPECT_NE(one.parameter_hash, two.parameter_hash);
  const std::size_t frozen = network.parameters().find("torch/first.weight")->count;
  EXPECT_EQ(
      std::vector(one.parameters.end() - static_cast<std::ptrdiff_t>(frozen), one.parameters.end()),
      std::vector(two.parameters.end() - static_cast<std::ptrdiff_t>(frozen),
                  two.parameters.end()));
}

struct DoubleImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.to(torch::kDouble) * factor; }
  at::Tensor factor = register_parameter("factor", torch::ones({1}, torch::kDouble));
};
TORCH_MODULE(Double);

struct HalvedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x.to(torch::kHalf) * factor; }
  at::Tensor factor = register_parameter("factor", torch::ones({1}, torch::kHalf));
};
TORCH_MODULE(Halved);

/// Adds and subtracts 1e-10, which float32 loses, and normalizes the remainder to 1.
struct SmallDifferenceImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    EXPECT_EQ(x.scalar_type(), torch::kDouble);
    return ((x + 1e-10) - x) * factor;
  }
  at::Tensor factor = register_parameter("factor", torch::full({2}, 1e10, torch::kDouble));
  at::Tensor shift = register_buffer("shift", torch::full({1}, 1.0 / 3, torch::kDouble));
};
TORCH_MODULE(SmallDifference);

TEST(ModuleLayer, ComputesInFloat64IfEnabled) {
  model::Network network({2});
  network.add(ModuleLayer([] { return SmallDifference(); }, {.float64 = true}));
  device::HostAllocator gradients;
  model::CompiledModel compiled(std::make_shared<const model::Network>(network), device::Device{},
                                gradients);
  compiled.initialize(1);
  const std::vector<float> features{1, 0.5F};
  EXPECT_THAT(compiled.predict_batch(1, features),
              ElementsAre(::testing::FloatNear(1, 1e-4F), ::testing::FloatNear(1, 1e-4F)));
  EXPECT_EQ(compiled.buffers()[0], static_cast<float>(1.0 / 3));
}

TEST(ModuleLayer, TrainsFloat64EquallyOnAnyNumberOfReplicas) {
  model::Network network({16}, "module");
  network.add(model::Dense({.units = 16}));
  network.add(ModuleLayer(
      [] {
        Classifier net;
        net->to(torch::kDouble);
        return net;
      },
      {.float64 = true}));
  const auto train_on = [&](int replicas) {
    return lockstep::train::train(replicas, network, lockstep::train::small_data(80).batch(40),
                                  {.optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}},
                                  {.epochs = 4});
  };
  const lockstep::train::Outcome one = train_on(1), three = train_on(3);
  EXPECT_LT(one.losses.back(), one.losses.front());
  ASSERT_EQ(one.parameters.size(), three.parameters.size());
  for (std::size_t i = 0; i < one.parameters.size(); ++i)
    EXPECT_NEAR(one.parameters[i], three.parameters[i], 1e-5F) << i;
}

struct InPlaceImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x) { return x.relu_(); }
};
TORCH_MODULE(InPlace);

TEST(ModuleLayer, RejectsModulesThatChangeTheirInputs) {
  model::Network network = network_of<InPlace>();
  network.add(model::Dense({.units = lockstep::train::kClasses}));
  EXPECT_THAT(error_of([&] {
                lockstep::train::train(1, network, lockstep::train::shuffled_data(), {},
                                       {.epochs = 1});
              }),
              HasSubstr("expected a module that leaves its inputs as they are; it changed one"));
}

TEST(ModuleLayer, RejectsModulesThatItCannotTrain) {
  struct Refusal {
    std::function<void()> call;
    std::string error;
    std::string of_libtorch = {};  // part of LibTorch's message that varies between releases
  };
  const std::array<Refusal, 4> refusals{
      {{[] { network_of<Double>(); },
        "[layer torch (torch)] expected parameters of type float32. A Trainer keeps float32: with "
        "ModuleOptions::float64 the module computes in float64 on values that are rounded to it; "
        "DistributedDataParallel, in a custom training loop, keeps float64, got factor, Double on "
        "cpu"},
       {[] { network_of<Halved>(); },
        "[layer torch (torch)] expected parameters of type float32 or float64 on the CPU, got "
        "factor, Half on cpu"},
       {[] { network_of<Classifier>({7}); },
        "[layer torch (torch)] expected a module that computes inputs of these shapes; "
        "LibTorch: ",
        "mat1 and mat2 shapes cannot be multiplied"},
       {[] { ModuleLayer("nowhere.pt"); },
        "[nowhere.pt] expected a TorchScript file; LibTorch: "}}};
  for (const Refusal& refusal : refusals)
    EXPECT_THAT(error_of(refusal.call),
                AllOf(HasSubstr(refusal.error), HasSubstr(refusal.of_libtorch)));
}

}  // namespace
}  // namespace interop_test
