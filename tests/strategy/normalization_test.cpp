// Batch normalization over the samples of several replicas.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/strategy/replica/replica_statistics.h"
#include "lockstep/strategy/step/normalization.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/normalization.h"
#include "tests/support/bfloat16.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::Communicator;
using allreduce::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 5;  // one epoch of unequal_images(); the last step has 3 samples

std::vector<NormalizedTraining> train_in_process(int replicas, const data::Dataset& dataset,
                                                 std::int64_t steps,
                                                 const TrainerOptions& options) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, replicas);
  return train_on(*strategy, dataset, steps, options);
}

TEST(NormalizationScope, RoundTrips) {
  for (const char* name : {"local", "sync", "group:3"})
    EXPECT_EQ(to_string(parse_normalization_scope(name)), name);
  EXPECT_EQ(parse_normalization_scope("group:12").members(24), 12);
  EXPECT_EQ(parse_normalization_scope("sync").members(24), 24);
  EXPECT_EQ(parse_normalization_scope("local").members(24), 1);
  for (const char* name :
       {"", "all", "group", "group:", "group:0", "group:-2", "group:2x", "group:99999999999"})
    EXPECT_EQ(
        error_of([&] { parse_normalization_scope(name); }),
        fmt::format("[bn] expected local, sync or group:K with K replicas, 1 or more, got \"{}\"",
                    name));
}

TEST(NormalizationScope, RejectsGroupsThatDoNotDivideTheReplicas) {
  EXPECT_EQ(error_of([] {
              train(4, normalized_network(), small_data().batch(8),
                    {.normalization = parse_normalization_scope("group:3")}, {.epochs = 1});
            }),
            "[bn] expected groups whose size divides the number of replicas, 4, got group:3");
}

TEST(Normalization, FindsASingleValue) {
  const auto found = [](const model::Network& network, std::int64_t samples, int replicas,
                        int accumulate, const char* scope) {
    const model::Node* const node = find_normalization_of_one_value(
        network, samples, replicas, accumulate, parse_normalization_scope(scope));
    return node == nullptr ? std::string() : node->name;
  };
  const model::Network images = normalized_images();
  const std::string second = "batch_normalization_1";  // the first one has 9 values per sample
  EXPECT_EQ(found(images, 1, 1, 1, "local"), second);
  EXPECT_EQ(found(images, 2, 1, 1, "local"), "");
  EXPECT_EQ(found(images, 7, 4, 1, "local"), second) << "a replica with one sample";
  EXPECT_EQ(found(images, 3, 4, 1, "local"), second);
  EXPECT_EQ(found(images, 8, 4, 1, "local"), "");
  EXPECT_EQ(found(images, 8, 4, 2, "local"), second);
  EXPECT_EQ(found(images, 8, 4, 2, "group:2"), "");
  EXPECT_EQ(found(images, 3, 4, 1, "sync"), "");
  EXPECT_EQ(found(images, 5, 4, 3, "sync"), second) << "micro-batches of 2, 2 and 1";
  EXPECT_EQ(found(plain_network(), 1, 1, 1, "local"), "");
}

TEST(Normalization, WarnsOfASingleValue) {
  const auto errors_of = [](std::int64_t records, std::int64_t batch) {
    ::testing::internal::CaptureStderr();
    train(2, normalized_network(), small_data(records).batch(batch), {}, {.epochs = 1});
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(errors_of(12, 3), HasSubstr("[batch_normalization] a micro-batch has a single value "
                                          "per channel in every step"));
  EXPECT_THAT(errors_of(11, 8),
              HasSubstr("[batch_normalization] a micro-batch has a single value per channel in the "
                        "last step of an epoch"));
  EXPECT_EQ(errors_of(12, 8), "");
}

class SynchronizedNormalization : public ::testing::TestWithParam<int> {};

TEST_P(SynchronizedNormalization, EqualsOneProcessWithTheGlobalBatch) {
  const NormalizedTraining one = train_alone(unequal_images(), kSteps, normalizing({}));
  EXPECT_EQ(one.losses.size(), static_cast<std::size_t>(kSteps));
  const auto several = train_in_process(GetParam(), unequal_images(), kSteps, normalizing(kSync));
  for (const NormalizedTraining& replica : several) expect_same_training(replica, one);
  for (const NormalizedTraining& replica : several) {
    EXPECT_EQ(replica.buffers, several[0].buffers);
    EXPECT_EQ(replica.parameters, several[0].parameters);
  }
}

TEST_P(SynchronizedNormalization, EqualsOneProcessWithTheSameMicroBatches) {
  TrainerOptions options = normalizing(kSync);
  options.accumulate = 3;  // micro-batches of 5, 4 and 4 samples
  const NormalizedTraining one = train_alone(unequal_images(), kSteps - 1, options);
  for (const NormalizedTraining& replica :
       train_in_process(GetParam(), unequal_images(), kSteps - 1, options))
    expect_same_training(replica, one, 1e-4);
}

TEST_P(SynchronizedNormalization, OfMicroBatchesMatchesOneReplica) {
  model::Network network({16}, "normalized, with dropout");
  network.add(model::Dense({.units = 12}));
  network.add(model::BatchNormalization({.momentum = 0.9F}));
  network.add(model::ReLU());
  network.add(model::Dropout({.rate = 0.3F}));
  network.add(model::Dense({.units = kClasses}));
  const TrainerOptions options{.optimizer = model::Sgd{.momentum = 0.9F},
                               .schedule = {.peak = 0.05F},
                               .accumulate = 3,
                               .normalization = kSync};
  const data::Dataset dataset = small_data(80).shuffle().batch(40);
  const Outcome one = train(1, network, dataset, options, {.epochs = 2});
  const Outcome several = train(GetParam(), network, dataset, options, {.epochs = 2});
  expect_within(several.losses, one.losses, 1e-4, "loss");
  expect_within(several.parameters, one.parameters, 1e-4, "parameter");
  expect_within(several.buffers, one.buffers, 1e-4, "moving statistic");
}

// Only one step: normalized values of two samples are always near 1 and -1, which amplifies
// rounding errors in later steps.
TEST_P(SynchronizedNormalization, EqualsOneProcessWithABatchSmallerThanTheReplicas) {
  const data::Dataset pairs = data::Dataset::synthetic({5, 5, 2}, kClasses, 12).batch(2);
  const NormalizedTraining one = train_alone(pairs, 1, normalizing({}));
  for (const NormalizedTraining& replica :
       train_in_process(GetParam(), pairs, 1, normalizing(kSync)))
    expect_same_training(replica, one);
}

INSTANTIATE_TEST_SUITE_P(Replicas, SynchronizedNormalization, ::testing::Values(2, 3, 4));

TEST(Normalization, OfEachReplicaAloneIsNotThatOfOneProcess) {
  const NormalizedTraining one = train_alone(unequal_images(), kSteps, normalizing({}));
  const auto several = train_in_process(4, unequal_images(), kSteps, normalizing({}));
  EXPECT_GT(std::abs(several[0].losses.back() - one.losses.back()), 1e-3);
  EXPECT_NE(several[0].buffers, several[1].buffers);
}

TEST(Normalization, OfASingleReplicaDoesNotDependOnTheScope) {
  const NormalizedTraining local = train_alone(unequal_images(), kSteps, normalizing({}));
  for (const char* scope : {"sync", "group:1"})
    EXPECT_EQ(train_alone(unequal_images(), kSteps, normalizing(parse_normalization_scope(scope)))
                  .parameters,
              local.parameters)
        << scope;
}

// The first step of four replicas in groups of two, against two jobs of two replicas on the same
// samples.
TEST(Normalization, OfGroupsEqualsThatOfSeparateJobs) {
  const data::Dataset dataset = unequal_images();
  const auto stream = dataset.stream({.last_step = 1, .replicas = 4, .local_replicas = 4});
  std::vector<data::Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  const auto first_step = [&](int first, int count, const char* scope) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, count);
    LocalReplicas replicas(*strategy, std::make_shared<const model::Network>(normalized_images()),
                           normalizing(parse_normalization_scope(scope)));
    replicas.initialize(1);
    replicas.run([&](Replica& replica, int local) {
      replica.train_step(parts[static_cast<std::size_t>(first + local)], request_of(0));
    });
    std::vector<NormalizedTraining> arrays;
    for (int local = 0; local < count; ++local) arrays.push_back(arrays_of(replicas[local]));
    return arrays;
  };
  const auto groups = first_step(0, 4, "group:2");
  const auto low = first_step(0, 2, "sync");
  const auto high = first_step(2, 2, "sync");
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(groups[i].buffers, low[i].buffers);
    EXPECT_EQ(groups[i + 2].buffers, high[i].buffers);
  }
  EXPECT_NE(groups[0].buffers, groups[2].buffers);
  for (std::size_t i = 0; i < groups[0].gradients.size(); ++i)
    EXPECT_NEAR(groups[0].gradients[i], low[0].gradients[i] + high[0].gradients[i], 1e-6) << i;
}

// In a batch of 12 with three micro-batches, the second has the second samples of each of four
// replicas.
TEST(Normalization, OfMicroBatchesIsOverAllReplicas) {
  const data::Dataset dataset = data::Dataset::synthetic({5, 5, 2}, kClasses, 24).batch(12);
  TrainerOptions options = normalizing(kSync);
  options.accumulate = 3;
  const auto together = train_in_process(4, dataset, 1, options);

  const auto stream = dataset.stream({.last_step = 1, .replicas = 4, .local_replicas = 4});
  std::vector<data::Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  set_thread_budget(1);
  device::HostAllocator allocator;
  model::CompiledModel model(std::make_shared<const model::Network>(normalized_images()),
                             device::Device{}, allocator);
  model.initialize(1);
  for (std::size_t piece = 0; piece < 3; ++piece) {
    std::vector<float> features;
    std::vector<std::int32_t> labels;
    for (const data::Batch& part : parts) {
      const auto samples = std::span(part.features()).subspan(piece * 50, 50);
      features.insert(features.end(), samples.begin(), samples.end());
      labels.push_back(part.labels()[piece]);
    }
    model.train_batch(
        {.samples = 4, .features = features, .targets = {.labels = labels, .values = {}}},
        {.global_samples = 12}, model::SparseCategoricalCrossentropy{}, piece > 0);
  }
  expect_within(together[0].gradients, copy_of(model.gradients()), 1e-5, "gradient");
  expect_within(together[3].buffers, copy_of(model.buffers()), 1e-5, "moving statistic");
}

TEST(Normalization, SupportsEmptyMicroBatchesOnSomeReplicas) {
  TrainerOptions options = normalizing(kSync);
  options.accumulate = 3;
  // 13 samples on 4 replicas: parts of 4 and 3; then 3 samples: parts of 1 and none.
  const auto several = train_in_process(4, unequal_images(), kSteps, options);
  for (const NormalizedTraining& replica : several) EXPECT_EQ(replica.buffers, several[0].buffers);
  for (const double loss : several[0].losses) EXPECT_TRUE(std::isfinite(loss));
  options.normalization = parse_normalization_scope("group:2");
  const auto grouped = train_in_process(4, unequal_images(), kSteps, options);
  for (const double loss : grouped[0].losses) EXPECT_TRUE(std::isfinite(loss));
  EXPECT_EQ(grouped[0].buffers, grouped[1].buffers);
  EXPECT_EQ(grouped[2].buffers, grouped[3].buffers);
}

TEST(Normalization, OfBfloat16IsOverAllReplicas) {
  TrainerOptions options = normalizing({});
  options.compute.precision = model::Precision::bfloat16;
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  const NormalizedTraining one = train_alone(unequal_images(), kSteps, options);
  options.normalization = kSync;
  // Products of bfloat16 numbers have errors of 2^-9 each.
  for (const NormalizedTraining& replica : train_in_process(4, unequal_images(), kSteps, options)) {
    expect_within(replica.losses, one.losses, 2e-2, "loss");
    expect_within(replica.buffers, one.buffers, 2e-2, "moving statistic");
  }
}

TEST(Normalization, EndsOnAllReplicasIfOneFails) {
  job::Session session(0, nullptr, {.quiet = true});
  const auto strategy = local_strategy(session, 3);
  LocalReplicas replicas(*strategy, std::make_shared<const model::Network>(normalized_images()),
                         normalizing(kSync));
  replicas.initialize(1);
  const auto stream = unequal_images().stream({.last_step = 1, .replicas = 3, .local_replicas = 3});
  std::vector<data::Batch> parts;
  ASSERT_TRUE(stream->next(parts));
  EXPECT_EQ(error_of([&] {
              replicas.run([&](Replica& replica, int local) {
                if (local == 1)
                  throw Error(ErrorCategory::data, "record", "expected a whole one", "got half");
                replica.train_step(parts[static_cast<std::size_t>(local)], request_of(0));
              });
            }),
            "[record] expected a whole one, got half");
}

TEST(Normalization, OfAllReplicasResumesExactly) {
  const TrainerOptions options{.optimizer = model::Adam{}, .accumulate = 2, .normalization = kSync};
  const data::Dataset dataset = small_data().shuffle().batch(40);
  const Outcome straight = train(3, normalized_network(), dataset, options, {.epochs = 2});
  const checkpoint::ScratchDirectory directory;
  FitOptions fit{.epochs = 2, .steps = 5};
  fit.checkpoint.directory = directory.path();
  train(3, normalized_network(), dataset, options, fit);
  fit.steps = 0;
  const Outcome resumed = train(3, normalized_network(), dataset, options, fit);
  EXPECT_EQ(resumed.losses.size(), 7U);
  EXPECT_EQ(resumed.parameter_hash, straight.parameter_hash);
  EXPECT_EQ(resumed.buffers, straight.buffers);
}

TEST(Normalization, IsTheSameForCheckpointsAndEvaluation) {
  const data::Dataset dataset = small_data().shuffle().batch(40);
  const auto evaluated = [&](int replicas) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    Trainer trainer(*strategy, normalized_network(),
                    {.optimizer = model::Sgd{}, .normalization = kSync});
    trainer.fit(dataset, {.epochs = 2});
    const double loss = trainer.evaluate(dataset).loss();
    trainer.replicas().run([](Replica& replica, int) { replica.adopt_mean_statistics(); });
    return std::pair(loss, copy_of(trainer.replicas()[replicas - 1].model().buffers()));
  };
  const auto [loss, buffers] = evaluated(1);
  const auto [loss_of_four, buffers_of_four] = evaluated(4);
  EXPECT_NEAR(loss_of_four, loss, 1e-5);
  expect_within(buffers_of_four, buffers, 1e-5, "moving statistic");
}

TEST(MovingStatistics, BecomeTheMeanWeightedBySamples) {
  allreduce::run_ranks(3, [](const Communicator& group) {
    // Replica 2 has no samples, so its statistics are ignored.
    const std::array<std::int64_t, 3> samples{1, 3, 0};
    const auto i = static_cast<std::size_t>(group.rank());
    std::vector<float> buffers{static_cast<float>(4 * group.rank()), 8};
    average_moving_statistics(group, buffers, samples[i]);
    EXPECT_THAT(buffers, ElementsAre(3, 8));
  });
}

TEST(MovingStatistics, IgnoreReplicasWithoutSamples) {
  allreduce::run_ranks(3, [](const Communicator& group) {
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    std::vector<float> buffers{2, 4};
    if (group.rank() == 1) buffers = {kInfinite, std::numeric_limits<float>::quiet_NaN()};
    average_moving_statistics(group, buffers, group.rank() == 1 ? 0 : 5);
    EXPECT_THAT(buffers, ElementsAre(2, 4));
  });
}

TEST(MovingStatistics, AreUnchangedWithoutTraining) {
  allreduce::run_ranks(2, [](const Communicator& group) {
    std::vector<float> buffers{5, 7};
    average_moving_statistics(group, buffers, 0);
    EXPECT_THAT(buffers, ElementsAre(5, 7));
  });
}

TEST(MovingStatistics, AreUnchangedOnOneReplica) {
  allreduce::run_ranks(1, [](const Communicator& group) {
    std::vector<float> buffers{0.1F, 1e-30F, 3e30F};
    average_moving_statistics(group, buffers, 77);
    EXPECT_THAT(buffers, ElementsAre(0.1F, 1e-30F, 3e30F));
  });
}

TEST(MovingStatistics, MayBeEmpty) {
  allreduce::run_ranks(2, [](const Communicator& group) {
    const auto activity = std::make_shared<allreduce::Activity>();
    average_moving_statistics(group.watched_by(activity), {}, 5);
    EXPECT_EQ(activity->state().entered, 0U) << "no collective";
  });
}

}  // namespace
}  // namespace lockstep::inline v0::train
