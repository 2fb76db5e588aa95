// Functions of LibTorch as losses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/loss/loss.h"
#include "tests/interop/torch/module_loop.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace interop_test {
namespace {

namespace F = torch::nn::functional;
namespace model = lockstep::model;
namespace strategy = lockstep::strategy;
using lockstep::allreduce::error_of;
using ::testing::Each;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

using Values = std::vector<float>;

at::Tensor cross_entropies(const at::Tensor& outputs, const at::Tensor& targets) {
  return F::cross_entropy(outputs, targets, F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

at::Tensor squares(const at::Tensor& outputs, const at::Tensor& targets) {
  return F::mse_loss(outputs, targets, F::MSELossFuncOptions().reduction(torch::kNone));
}

model::Loss loss_of_function(FunctionLoss::Function function, std::string activation = {}) {
  return std::make_shared<FunctionLoss>(
      std::move(function),
      FunctionLossOptions{.name = "mine", .activation = std::move(activation)});
}

struct Equal {
  model::Loss ours;
  FunctionLoss::Function theirs;
  model::Targets targets;
};

// Three samples of two outputs.
const Values kOutputs{0.5F, -1, 2, 0.25F, -0.75F, 1.5F};
const std::vector<std::int32_t> kLabels{1, 0, 1};
const Values kTargets{0, 1, 0.5F, 0.5F, -1, 2};

TEST(FunctionLoss, EqualsTheBuiltInLoss) {
  const std::vector<Equal> cases{
      {model::SparseCategoricalCrossentropy{}, cross_entropies, {.labels = kLabels}},
      {model::MeanSquaredError{}, squares, {.values = kTargets}},
      {model::MeanSquaredError{},
       [](const at::Tensor& outputs, const at::Tensor& targets) {
         return squares(outputs.to(torch::kDouble), targets.to(torch::kDouble)).mean(1);
       },
       {.values = kTargets}},
      {model::Huber{},
       [](const at::Tensor& outputs, const at::Tensor& targets) {
         return F::huber_loss(outputs, targets, F::HuberLossFuncOptions().reduction(torch::kNone));
       },
       {.values = kTargets}}};
  for (const Equal& one : cases)
    for (const Values& weights : {Values{}, Values{0.5F, 0, 3}}) {
      model::Targets targets = one.targets;
      targets.sample_weights = weights;
      Values expected(6), gradient(6, 7);
      const auto ours = model::compute_loss(one.ours, kOutputs, 3, targets, 5, expected);
      const auto theirs =
          model::compute_loss(loss_of_function(one.theirs), kOutputs, 3, targets, 5, gradient);
      EXPECT_NEAR(theirs.loss(), ours.loss(), 1e-6) << model::to_string(one.ours);
      EXPECT_EQ(theirs.weight_sum(), ours.weight_sum());
      EXPECT_FALSE(theirs.has_accuracy());
      EXPECT_THAT(gradient, Pointwise(FloatNear(1e-6F), expected)) << model::to_string(one.ours);
      EXPECT_EQ(
          model::compute_loss(loss_of_function(one.theirs), kOutputs, 3, targets, 1, {}).loss_sum,
          theirs.loss_sum);
    }
}

TEST(FunctionLoss, EvaluatesOneSampleToo) {
  const FunctionLoss loss(squares);
  const Values outputs{1, 2}, targets{0, 0};
  Values gradient(2);
  EXPECT_EQ(loss.value(outputs, {.values = targets}), 2.5);
  loss.gradient(outputs, {.values = targets}, gradient);
  EXPECT_THAT(gradient, ::testing::ElementsAre(1, 2));
  EXPECT_NEAR(FunctionLoss(cross_entropies).value(outputs, {.label = 1}),
              std::log(1 + std::exp(-1.0)), 1e-6);
}

TEST(FunctionLoss, HasTheAccuracyOfLogits) {
  const model::Targets targets{.labels = kLabels};
  const auto ours =
      model::compute_loss(model::SparseCategoricalCrossentropy{}, kOutputs, 3, targets, 1, {});
  const auto theirs = model::compute_loss(loss_of_function(cross_entropies, "softmax"), kOutputs, 3,
                                          targets, 1, {});
  EXPECT_TRUE(theirs.has_accuracy());
  EXPECT_EQ(theirs.correct, ours.correct);
}

TEST(FunctionLoss, IgnoresASampleOfWeight0) {
  Values outputs = kOutputs;
  outputs[2] = std::numeric_limits<float>::quiet_NaN();
  const Values weights{1, 0, 1};
  Values gradient(6, 7);
  const auto sums =
      model::compute_loss(loss_of_function(squares), outputs, 3,
                          {.values = kTargets, .sample_weights = weights}, 2, gradient);
  EXPECT_TRUE(std::isfinite(sums.loss()));
  EXPECT_THAT(std::span(gradient).subspan(2, 2), Each(0));
  EXPECT_TRUE(std::isfinite(gradient[0]) && std::isfinite(gradient[5]));
}

TEST(FunctionLoss, TrainsLikeTheBuiltInLossOnAnyNumberOfReplicas) {
  const auto train_with = [](int replicas, const model::Loss& loss) {
    return lockstep::train::train(
        replicas, lockstep::train::plain_network(), lockstep::train::shuffled_data(),
        {.loss = loss, .optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}}, {.epochs = 2});
  };
  const lockstep::train::Outcome ours = train_with(1, model::SparseCategoricalCrossentropy{});
  EXPECT_LT(ours.losses.back(), ours.losses.front());
  for (const int replicas : {1, 2, 3}) {
    const lockstep::train::Outcome theirs = train_with(replicas, loss_of_function(cross_entropies));
    ASSERT_EQ(theirs.losses.size(), ours.losses.size());
    for (std::size_t i = 0; i < ours.losses.size(); ++i)
      EXPECT_NEAR(theirs.losses[i], ours.losses[i], 1e-5) << replicas;
    ASSERT_EQ(theirs.parameters.size(), ours.parameters.size());
    for (std::size_t i = 0; i < ours.parameters.size(); ++i)
      EXPECT_NEAR(theirs.parameters[i], ours.parameters[i], 1e-5F) << replicas;
  }
}

TEST(FunctionLoss, RejectsResultsThatAreNotALossPerSample) {
  using Function = FunctionLoss::Function;
  const std::vector<std::pair<Function, std::string>> refusals{
      {[](const at::Tensor& o, const at::Tensor& t) { return torch::mse_loss(o, t); },
       "[mine] expected a loss for each of 3 samples, got one number for all of them: use "
       "reduction "
       "none, torch::kNone"},
      {[](const at::Tensor& o, const at::Tensor&) { return o.t(); },
       "[mine] expected a loss for each of 3 samples, got a tensor of shape [2, 3]"},
      {[](const at::Tensor&, const at::Tensor&) { return at::Tensor(); },
       "got an undefined tensor"},
      {[](const at::Tensor& o, const at::Tensor&) { return o.argmax(1); },
       "got values of type Long"},
      {[](const at::Tensor& o, const at::Tensor&) { return torch::zeros_like(o); },
       "[mine] expected a loss that depends on the outputs; autograd has no graph of it"},
      {[](const at::Tensor& o, const at::Tensor&) {
         TORCH_CHECK(o.dim() == 1, "this loss wants vectors");
         return o;
       },
       "[mine] expected a function that computes this batch; LibTorch: this loss wants vectors"}};
  for (const auto& [function, error] : refusals) {
    Values gradient(6);
    EXPECT_THAT(error_of([&, &function = function] {
                  model::compute_loss(loss_of_function(function), kOutputs, 3, {.values = kTargets},
                                      1, gradient);
                }),
                HasSubstr(error));
  }
  EXPECT_THAT(error_of([] { loss_of_function({}); }),
              HasSubstr("[mine] expected a function of outputs and targets, got an empty one"));
}

}  // namespace
}  // namespace interop_test
