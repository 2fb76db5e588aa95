// User-defined optimizers in a training match the library's optimizer with the same formula.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::DoubleNear;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

/// model::Sgd with momentum.
class OwnMomentum final : public model::CustomOptimizer {
 public:
  explicit OwnMomentum(float momentum = 0.9F, float weight_decay = 0, std::string slot = "momentum")
      : momentum_(momentum), weight_decay_(weight_decay), slot_(std::move(slot)) {}
  std::string name() const override { return "own_momentum"; }
  std::vector<std::string> slots() const override { return {slot_}; }
  std::vector<std::pair<std::string, float>> hyperparameters() const override {
    return {{"momentum", momentum_}};
  }
  float weight_decay() const override { return weight_decay_; }
  void update(const model::UpdateElements& elements,
              const model::UpdateNumbers& numbers) const override {
    const std::span<float> velocity = elements.slots[0];
    for (std::size_t i = 0; i < elements.values.size(); ++i) {
      const float gradient = elements.gradients[i] + numbers.weight_decay * elements.values[i];
      velocity[i] = momentum_ * velocity[i] + gradient;
      elements.values[i] -= numbers.learning_rate * velocity[i];
    }
  }

 private:
  float momentum_;
  float weight_decay_;
  std::string slot_;
};

std::shared_ptr<const model::CustomOptimizer> own(float momentum = 0.9F) {
  return std::make_shared<OwnMomentum>(momentum);
}

FitOptions saving_in(const checkpoint::ScratchDirectory& directory, std::int64_t steps) {
  FitOptions fit{.epochs = 3, .steps = steps};
  fit.checkpoint.directory = directory.path();
  return fit;
}

/// Equal up to rounding: the compiler may fuse products and sums differently in the library.
TEST(OwnOptimizer, TrainsAsTheSameFormulaInTheLibrary) {
  for (const int replicas : {1, 2, 3}) {
    const auto with = [&](const model::OptimizerOptions& optimizer) {
      return train(replicas, dropout_network(), shuffled_data(),
                   {.optimizer = optimizer, .schedule = {.peak = 0.05F, .warmup_steps = 4}},
                   {.epochs = 2});
    };
    const Outcome ours = with(model::Sgd{.momentum = 0.9F});
    const Outcome outcome = with(own());
    EXPECT_THAT(outcome.parameters, Pointwise(FloatNear(1e-5F), ours.parameters)) << replicas;
    EXPECT_THAT(outcome.losses, Pointwise(DoubleNear(1e-5), ours.losses)) << replicas;
    EXPECT_EQ(with(own()).parameter_hash, outcome.parameter_hash) << replicas;
  }
}

/// Clipping scales gradients before the optimizer; decay is that of the group.
TEST(OwnOptimizer, WorksWithGroupsFrozenParametersClippingAndAverages) {
  TrainerOptions options{.schedule = {.peak = 0.05F},
                         .ema = 0.75F,
                         .freeze = {"dense_1/bias"},
                         .groups = {{.pattern = "dense/*", .learning_rate = 0.025F},
                                    {.pattern = "dense_1/*", .weight_decay = 0.5F}},
                         .clip_norm = 0.5};
  FitOptions fit{.epochs = 1};
  fit.validation = small_data().batch(40);
  for (const int replicas : {1, 3}) {
    options.optimizer = model::Sgd{.momentum = 0.9F, .weight_decay = 0.125F};
    const Outcome ours = train(replicas, plain_network(), shuffled_data(), options, fit);
    options.optimizer = std::make_shared<OwnMomentum>(0.9F, 0.125F);
    const Outcome outcome = train(replicas, plain_network(), shuffled_data(), options, fit);
    // Up to rounding: a compiler may fuse products and sums.
    EXPECT_THAT(outcome.parameters,
                ::testing::Pointwise(::testing::FloatNear(1e-5F), ours.parameters));
    EXPECT_NEAR(outcome.history.epochs[0].validation->loss(),
                ours.history.epochs[0].validation->loss(), 1e-5);
  }
}

TEST(OwnOptimizer, ResumesExactly) {
  for (const int replicas : {1, 3}) {
    const TrainerOptions options{.optimizer = own()};
    const Outcome straight =
        train(replicas, dropout_network(), shuffled_data(), options, {.epochs = 3});
    const checkpoint::ScratchDirectory directory;
    train(replicas, dropout_network(), shuffled_data(), options, saving_in(directory, 8));
    const Outcome resumed =
        train(replicas, dropout_network(), shuffled_data(), options, saving_in(directory, 0));
    EXPECT_EQ(resumed.losses.size(), 10U);
    EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash);
  }
}

/// As for the library's optimizers, other slots are an error, and other hyperparameters a warning.
TEST(OwnOptimizer, IsInCheckpointsByItsSlots) {
  const checkpoint::ScratchDirectory directory;
  const auto train_with = [&](const model::OptimizerOptions& optimizer, std::int64_t steps) {
    return train(1, plain_network(), shuffled_data(),
                 {.optimizer = optimizer, .schedule = {.peak = 0.05F}},
                 saving_in(directory, steps));
  };
  train_with(own(), 4);
  EXPECT_THAT(error_of([&] { train_with(model::Adam{}, 5); }),
              HasSubstr("expected a checkpoint of adam, got one of own_momentum; use another "
                        "--checkpoint-dir to start over, with --init-from "));
  EXPECT_THAT(
      error_of([&] { train_with(std::make_shared<OwnMomentum>(0.9F, 0.0F, "velocity"), 5); }),
      HasSubstr("expected a checkpoint of own_momentum:momentum=0.9, got one of own_momentum"));
  ::testing::internal::CaptureStderr();
  train_with(own(0.5F), 5);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("optimizer: own_momentum:momentum=0.9 in the earlier run"));
  ::testing::internal::CaptureStderr();
  const Outcome ours = train_with(model::Sgd{.momentum = 0.5F}, 6);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the training continues with sgd:momentum=0.5"))
      << "the velocity of the same name";
  EXPECT_EQ(ours.losses.size(), 1U);
}

TEST(OwnOptimizer, IsRejectedIfInvalid) {
  for (const int replicas : {1, 2}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    EXPECT_EQ(error_of([&] {
                Trainer(*strategy, plain_network(), {.optimizer = model::CustomOptimizerPointer()});
              }),
              "[optimizer] expected an optimizer, got a null pointer");
    EXPECT_EQ(
        error_of([&] {
          Trainer(*strategy, plain_network(),
                  {.optimizer = std::make_shared<OwnMomentum>(0.9F, 0.0F, "average"), .ema = 0.5F});
        }),
        "[own_momentum] expected another name of a slot, got \"average\", which is the average of "
        "the parameters");
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
