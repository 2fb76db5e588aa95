// Trainings that compute in bfloat16 and keep parameters in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/bfloat16.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using model::Precision;
using ::testing::HasSubstr;

class TrainingInBfloat16 : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  }
};

data::Dataset images() { return data::Dataset::synthetic({12, 12, 1}, 4, 640).shuffle().batch(32); }

double mean_of_last(const std::vector<double>& losses, std::size_t count) {
  double sum = 0;
  for (std::size_t i = losses.size() - count; i < losses.size(); ++i) sum += losses[i];
  return sum / static_cast<double>(count);
}

TEST_F(TrainingInBfloat16, LearnsAsWellAsInFloat32) {
  for (const char* name : {"mlp", "cnn"}) {
    TrainerOptions options{.optimizer = model::Adam{}, .schedule = {.peak = 1e-3F}};
    const FitOptions fit{.epochs = 0, .steps = 200};
    const Outcome exact = train(1, zoo::make(name, {12, 12, 1}, 4), images(), options, fit);
    options.compute.precision = Precision::bfloat16;
    const Outcome rough = train(1, zoo::make(name, {12, 12, 1}, 4), images(), options, fit);
    EXPECT_NE(rough.parameter_hash, exact.parameter_hash);
    const double expected = mean_of_last(exact.losses, 20);
    EXPECT_LT(expected, exact.losses.front() / 2) << name;
    EXPECT_NEAR(mean_of_last(rough.losses, 20), expected, 0.05 * expected + 0.005) << name;
  }
}

TEST_F(TrainingInBfloat16, OnTwoReplicasMatchesOne) {
  const TrainerOptions options{.optimizer = model::Sgd{.momentum = 0.9F},
                               .compute = {.precision = Precision::bfloat16}};
  const FitOptions fit{.epochs = 0, .steps = 20};
  const Outcome one = train(1, plain_network(), small_data().shuffle().batch(40), options, fit);
  const Outcome two = train(2, plain_network(), small_data().shuffle().batch(40), options, fit);
  for (std::size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(two.losses[i], one.losses[i], 1e-2) << "step " << i;
}

TEST_F(TrainingInBfloat16, ResumesExactly) {
  const TrainerOptions options{.optimizer = model::Adam{},
                               .compute = {.precision = Precision::bfloat16}};
  const data::Dataset dataset = small_data().shuffle().batch(40);
  const Outcome straight = train(2, dropout_network(), dataset, options, {.epochs = 3});
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 3, .steps = 8};
  fit.checkpoint.directory = directory.path();
  train(2, dropout_network(), dataset, options, fit);
  fit.steps = 0;
  const Outcome resumed = train(2, dropout_network(), dataset, options, fit);
  EXPECT_EQ(resumed.losses.size(), 10U);
  EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash);
}

TEST_F(TrainingInBfloat16, IsRecordedInCheckpointsAndWarnsOnAnotherType) {
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 2, .steps = 3};
  fit.checkpoint.directory = directory.path();
  const data::Dataset dataset = small_data().batch(40);
  train(1, plain_network(), dataset, {.compute = {.precision = Precision::bfloat16}}, fit);
  const auto saved = checkpoint::list_checkpoints(directory.path());
  ASSERT_EQ(saved.size(), 1U);
  const std::string state = (saved[0].path / checkpoint::kStateFile).string();
  EXPECT_EQ(checkpoint::parse_training_state(checkpoint::read_small_file(state), state).precision,
            "bfloat16");
  fit.steps = 5;
  ::testing::internal::CaptureStderr();
  const Outcome outcome = train(1, plain_network(), dataset, {}, fit);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("precision: bfloat16 in the earlier run; the training continues with float32"));
  EXPECT_EQ(outcome.losses.size(), 2U);
}

TEST(TrainingInFloat16, RequiresAGpu) {
  for (const int replicas : {1, 2})
    EXPECT_EQ(error_of([&] {
                train(replicas, plain_network(), small_data().batch(40),
                      {.compute = {.precision = Precision::float16}}, {});
              }),
              "[precision] expected a GPU for float16, got cpu:0; use bfloat16 or float32");
}

}  // namespace
}  // namespace lockstep::inline v0::train
