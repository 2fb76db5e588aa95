// Parts of the training loop: health of steps, saved state, micro-batches, names of buckets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/allreduce/activity.h"
#include "lockstep/strategy/replica/micro_batches.h"
#include "lockstep/train/fit/fit_state.h"
#include "lockstep/train/step/step_health.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::ElementsAre;

class StepHealthTest : public ::testing::Test {
 protected:
  /// Adds `count` steps; the last result.
  std::optional<std::string> add(StepHealth& health, int count, const StepResult& result) {
    std::optional<std::string> diverged;
    for (int i = 0; i < count; ++i) diverged = health.add(result, ++step_, 1);
    return diverged;
  }
  static StepResult result(bool applied, bool overflow = false) {
    StepResult result;
    result.applied = applied;
    result.overflow = overflow;
    return result;
  }
  const StepResult good_ = result(true);
  const StepResult skipped_ = result(false);
  const StepResult overflow_ = result(false, true);
  job::Session session_{0, nullptr, {.quiet = true}};
  std::unique_ptr<Strategy> strategy_ = local_strategy(session_, 1);
  std::int64_t step_ = 0;
};

TEST_F(StepHealthTest, CountsSkipsInARowAndNoOverflows) {
  ::testing::internal::CaptureStderr();
  StepHealth health(*strategy_);
  EXPECT_FALSE(add(health, 99, skipped_));
  EXPECT_FALSE(health.is_healthy());
  EXPECT_FALSE(add(health, 1, good_));
  EXPECT_TRUE(health.is_healthy());
  EXPECT_FALSE(health.last_was_skipped());
  EXPECT_FALSE(add(health, 200, overflow_));
  EXPECT_TRUE(health.is_healthy());
  EXPECT_TRUE(health.last_was_skipped());
  EXPECT_FALSE(add(health, 99, skipped_));
  EXPECT_FALSE(add(health, 1, overflow_)) << "does not end the row";
  EXPECT_EQ(add(health, 1, skipped_),
            "100 skipped steps in a row, the last one (401) for a non-finite gradient");
  ::testing::internal::GetCapturedStderr();
}

TEST_F(StepHealthTest, LogsTheFirstTheTenthAndTheHundredthInARow) {
  ::testing::internal::CaptureStderr();
  StepHealth health(*strategy_);
  add(health, 100, skipped_);
  add(health, 1, good_);
  add(health, 9, skipped_);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: warning: step 1 skipped: non-finite gradient\n"
            "lockstep: warning: step 10 skipped: non-finite gradient; 10 in a row\n"
            "lockstep: warning: step 100 skipped: non-finite gradient; 100 in a row\n"
            "lockstep: warning: step 102 skipped: non-finite gradient\n");
}

TEST_F(StepHealthTest, AtTheEndDependsOnTheLastStep) {
  ::testing::internal::CaptureStderr();
  const auto at_end = [&](int good, int skipped, int overflows, int signal) {
    StepHealth health(*strategy_);
    add(health, good, good_);
    add(health, skipped, skipped_);
    add(health, overflows, overflow_);
    EXPECT_EQ(health.skipped_steps(), skipped);
    return health.at_end(signal).value_or("");
  };
  EXPECT_EQ(at_end(0, 3, 0, 0), "3 skipped steps at the end");
  EXPECT_EQ(at_end(3, 27, 0, 0), "27 skipped steps at the end");
  EXPECT_EQ(at_end(29, 1, 0, 0), "1 skipped step at the end");
  EXPECT_EQ(at_end(3, 2, 1, 0), "2 skipped steps at the end");
  EXPECT_EQ(at_end(2, 0, 3, 0), "");
  EXPECT_EQ(at_end(0, 0, 0, 0), "") << "nothing to do";
  EXPECT_EQ(at_end(0, 3, 0, SIGTERM), "") << "a signal ends it";
  ::testing::internal::GetCapturedStderr();
}

TEST(FitState, RoundTrips) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 1);
  const auto network = std::make_shared<const model::Network>(plain_network());
  LocalReplicas replicas(*strategy, network, {.loss = {}, .optimizer = {}});
  const data::Dataset dataset = small_data().batch(16);
  TrainerOptions options;
  options.tune_buckets = true;
  const FitOptions fit{.epochs = 3};
  FitPlan plan(*strategy, options, dataset, fit);
  plan.agree(replicas);
  EXPECT_EQ(plan.steps_per_epoch, 13);
  EXPECT_EQ(plan.last_step, 39);
  FitState state{.position = plan.start(), .epoch = {}};
  state.position.step = 17;
  state.position.updates = 15;
  state.position.epochs_done = 1;
  state.epoch = {.sums = {.loss_sum = 0.1, .samples = 32, .correct = 5, .correct_top5 = 31},
                 .skipped_samples = 16};
  state.tuned_bytes = 4 << 20;
  state.position.validated_step = 15;
  state.best = {"validation_loss", 0.1};
  *state.callbacks = {{"mine", {{"count", 3}}}};
  replicas.arrays(true);  // as for restoring
  const FitState read = resume_from(
      {.path = "step-00000017", .state = to_training_state(state, plan, replicas)}, plan, replicas);
  EXPECT_EQ(read.position.step, 17);
  EXPECT_EQ(read.position.first_step, 17);
  EXPECT_EQ(read.position.last_step, 39);
  EXPECT_EQ(read.position.updates, 15);
  EXPECT_EQ(read.position.validated_step, 15);
  EXPECT_EQ(read.best, state.best);
  EXPECT_EQ(*read.callbacks, *state.callbacks);
  EXPECT_EQ(read.position.epochs_done, 1);
  EXPECT_EQ(read.epoch.sums.loss_sum, 0.1);
  EXPECT_EQ(read.epoch.sums.samples, 32);
  EXPECT_EQ(read.epoch.sums.correct, 5);
  EXPECT_EQ(read.epoch.sums.correct_top5, 31);
  EXPECT_TRUE(read.epoch.sums.has_accuracy());
  EXPECT_EQ(read.epoch.skipped_samples, 16);
  EXPECT_EQ(read.tuned_bytes, std::size_t{4} << 20);
}

TEST(MicroBatches, DivideAPart) {
  const model::Network network = plain_network();
  const auto sizes = [&](std::int64_t samples, std::int64_t global_samples, int accumulate,
                         int replicas) {
    data::Batch part;
    part.samples = samples;
    part.global_samples = global_samples;
    const MicroBatches micro_batches(network, accumulate, replicas);
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < micro_batches.count(part); ++i)
      all.push_back(micro_batches.range(part, i).size());
    return all;
  };
  EXPECT_THAT(sizes(7, 14, 1, 0), ElementsAre(7));
  EXPECT_THAT(sizes(7, 14, 2, 0), ElementsAre(3, 4));
  EXPECT_THAT(sizes(2, 4, 5, 0), ElementsAre(1, 1));
  EXPECT_THAT(sizes(0, 4, 5, 0), ElementsAre(0));
  // Replicas that normalize together have as many micro-batches as the one with the most samples.
  EXPECT_THAT(sizes(1, 5, 4, 3), ElementsAre(0, 1));
  EXPECT_THAT(sizes(0, 5, 4, 3), ElementsAre(0, 0));
}

TEST(MicroBatches, FindInputsAndTargetsByName) {
  const data::SampleSpec spec = house_data(1).spec();
  data::Batch part(spec, 3);
  part.inputs[0].as<float>()[4] = 0.5F;      // image
  part.inputs[1].as<std::int32_t>()[1] = 4;  // word
  part.inputs[2].as<float>()[5] = 2;         // table
  part.targets[0].as<float>()[1] = 7;        // price
  part.targets[1].as<std::int32_t>()[1] = 2;
  part.weights = {1, 3, 1};
  const model::Network network = house_network();
  MicroBatches named(network, 1, 0, loss_plan(house_options(), network).loss);
  const model::BatchView view = named.view(part, {1, 2});
  ASSERT_EQ(view.inputs.size(), 3U);
  EXPECT_THAT(view.inputs[0].features, ElementsAre(0, 0, 2));
  EXPECT_THAT(view.inputs[1].features, ElementsAre(0.5F, 0, 0, 0));
  EXPECT_THAT(view.inputs[2].indices, ElementsAre(4));
  EXPECT_THAT(view.targets.labels, ElementsAre(2));
  EXPECT_THAT(view.targets_of(1).values, ElementsAre(7));
  EXPECT_THAT(view.targets.sample_weights, ElementsAre(3));
  EXPECT_THAT(view.targets_of(1).sample_weights, ElementsAre(3));
  const auto* const inputs = view.inputs.data();
  EXPECT_EQ(named.view(part).inputs.data(), inputs) << "allocates nothing for a further batch";

  // A single input matches by name among several, or the only one of any name.
  model::Network table({{.name = "table", .shape = {3}}}, "table");
  table.add(model::Dense({.units = 1}));
  MicroBatches of_table(table, 1, 0);
  EXPECT_THAT(of_table.view(part, {1, 2}).features, ElementsAre(0, 0, 2));
  data::Batch other(data::SampleSpec::regression({3}, 1), 1);
  EXPECT_EQ(of_table.view(other).features.size(), 3U);
  other.resize({.inputs = {spec.inputs[0], spec.inputs[1]}, .targets = {}}, 1);
  EXPECT_EQ(error_of([&] { of_table.view(other); }),
            "[table] expected inputs table, got image, word");
}

TEST(MicroBatches, FollowTheOrderOfThePart) {
  const model::Network network = plain_network();
  data::Batch part;
  part.samples = 4;  // 5, 6, 7 and 8 of 12, in the order 6, 7, 5, 8
  part.first_sample = 5;
  part.global_samples = 12;
  part.micro_batches = 3;
  for (const int replicas : {0, 3}) {
    const MicroBatches micro_batches(network, 3, replicas);
    EXPECT_EQ(micro_batches.count(part), 3);
    EXPECT_EQ(micro_batches.range(part, 0), (data::Range{0, 1}));
    EXPECT_EQ(micro_batches.range(part, 1), (data::Range{1, 2}));
    EXPECT_EQ(micro_batches.range(part, 2), (data::Range{2, 4}));
    // In the order 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11 of the global batch.
    EXPECT_EQ(micro_batches.first_sample(part, 0), 2);
    EXPECT_EQ(micro_batches.first_sample(part, 1), 6);
    EXPECT_EQ(micro_batches.first_sample(part, 2), 9);
  }
  part.micro_batches = 1;
  EXPECT_EQ(MicroBatches(network, 2, 0).first_sample(part, 1), 7);
}

TEST(Replica, NamesTheContentsOfItsBuckets) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 1);
  const auto network = std::make_shared<const model::Network>(plain_network());
  LocalReplicas replicas(*strategy, network, {.loss = {}, .optimizer = {}});
  const auto entries = network->parameters().entries();
  EXPECT_THAT(strategy->activity(0).bucket_contents(),
              ElementsAre(fmt::format("{} .. {}", entries.front().name, entries.back().name)));
  replicas[0].set_bucket_bytes(1);
  EXPECT_THAT(strategy->activity(0).bucket_contents(),
              ElementsAre(entries[0].name, entries[1].name, entries[2].name, entries[3].name,
                          "the step's report"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
