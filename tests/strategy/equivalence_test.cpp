// N replicas compute the same as one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/strategy/training.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

void expect_close(const std::vector<double>& losses, const std::vector<double>& expected,
                  double relative) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i], expected[i], relative * std::abs(expected[i])) << "step " << i;
}

void expect_close(const std::vector<float>& values, const std::vector<float>& expected,
                  double absolute) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], absolute) << "element " << i;
}

/// 203 samples in batches of 40: 6 steps an epoch, the last with 3 samples, so a replica may have
/// none.
data::Dataset ragged_data() { return small_data().shuffle().batch(40); }

struct Kind {
  std::string name;
  model::Network (*network)();
  TrainerOptions options;
  data::Dataset (*data)() = ragged_data;
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

Kind plain_adam() { return {"PlainAdam", plain_network, {.optimizer = model::Adam{}}}; }
Kind dropout_sgd() {
  return {"DropoutSgd",
          dropout_network,
          {.optimizer = model::Sgd{.momentum = 0.9F, .weight_decay = 1e-3F},
           .schedule = {.peak = 0.05F}}};
}
Kind clipped() {
  return {"Clipped",
          plain_network,
          {.optimizer = model::Sgd{}, .schedule = {.peak = 0.5F}, .clip_norm = 0.05}};
}
Kind smoothed() {
  return {"Smoothed",
          plain_network,
          {.loss = model::SparseCategoricalCrossentropy{.label_smoothing = 0.1F},
           .optimizer = model::AdamW{}}};
}
Kind weighted() {
  return {"Weighted",
          plain_network,
          {.class_weights = {1, 2, 0.5F, 0.25F},
           .optimizer = model::Sgd{},
           .schedule = {.peak = 0.5F},
           .clip_norm = 0.5}};
}
Kind layer_wise_sgd() {
  return {"LayerWiseSgd",
          plain_network,
          {.optimizer = model::Lars{.trust_coefficient = 0.1F}, .schedule = {.peak = 0.1F}}};
}
Kind layer_wise_adam() {
  return {
      "LayerWiseAdam", plain_network, {.optimizer = model::Lamb{}, .schedule = {.peak = 0.01F}}};
}

data::Dataset ragged_houses() { return house_data().shuffle().batch(40); }
Kind several_outputs() { return {"SeveralOutputs", house_network, house_options(), ragged_houses}; }

/// Samples of two of five words; each word determines the next one.
data::Dataset ragged_words() {
  std::mt19937 random(5);
  std::vector<std::int32_t> words;
  std::vector<std::int32_t> next;
  for (int i = 0; i < 203; ++i) {
    const auto first = static_cast<std::int32_t>(random() % 5);
    words.push_back(first);
    words.push_back((2 * first + 1) % 5);
    next.push_back((4 * first + 3) % 5);
  }
  return data::Dataset::from_memory(
             {std::move(words)}, {std::move(next)},
             data::SampleSpec{
                 .inputs = {{.name = "words", .type = ElementType::int32, .shape = {2}}},
                 .targets = {{.name = "next", .type = ElementType::int32, .classes = 5}}})
      .shuffle()
      .batch(40);
}
/// Outputs are products with the embedding table.
model::Network tied_network() {
  model::Network network({{.name = "words", .shape = {2}, .type = ElementType::int32}}, "tied");
  network.add(model::Embedding({.vocabulary = 5, .dimension = 6}));
  network.add(model::PositionalEmbedding());
  network.add(model::Flatten());
  network.add(model::Dense({.units = 6}));
  network.add(model::RMSNormalization());
  network.add(model::TiedDense({.to = "embedding", .use_bias = true}));
  return network;
}
Kind tied() {
  return {
      "Tied", tied_network, {.optimizer = model::Sgd{}, .schedule = {.peak = 0.02F}}, ragged_words};
}

class ReplicaEquivalence : public ::testing::TestWithParam<std::tuple<Kind, int>> {};

TEST_P(ReplicaEquivalence, LossesOfTwentyStepsAreThoseOfOneReplica) {
  const auto& [kind, replicas] = GetParam();
  const FitOptions fit{.epochs = 0, .steps = 20};
  const Outcome one = train(1, kind.network(), kind.data(), kind.options, fit);
  const Outcome several = train(replicas, kind.network(), kind.data(), kind.options, fit);
  EXPECT_EQ(one.losses.size(), 20U);
  EXPECT_LT(one.losses.back(), one.losses.front());
  expect_close(several.losses, one.losses, 1e-5);
  // Adam divides by the root of a gradient that may be only rounding, so parameters can differ more
  // than losses.
  expect_close(several.parameters, one.parameters, 1e-4);
  for (std::size_t i = 0; i < one.steps.size(); ++i) {
    EXPECT_EQ(several.steps[i].metrics.samples, one.steps[i].metrics.samples);
    EXPECT_EQ(several.steps[i].samples, one.steps[i].samples);
    EXPECT_NEAR(several.steps[i].gradient_norm, one.steps[i].gradient_norm,
                1e-5 * one.steps[i].gradient_norm);
  }
}

std::string name_of_kind(const ::testing::TestParamInfo<ReplicaEquivalence::ParamType>& info) {
  const auto& [kind, replicas] = info.param;
  return kind.name + std::to_string(replicas);
}

INSTANTIATE_TEST_SUITE_P(Replicas, ReplicaEquivalence,
                         ::testing::Combine(::testing::Values(plain_adam(), dropout_sgd(),
                                                              clipped(), smoothed(), weighted(),
                                                              layer_wise_sgd(), layer_wise_adam(),
                                                              several_outputs(), tied()),
                                            ::testing::Values(2, 3, 4)),
                         name_of_kind);

/// Partners are from the whole epoch, so that they do not depend on the distribution of records.
TEST(Mixup, IsTheSameForAnyNumberOfReplicasAndMicroBatches) {
  const FitOptions fit{.epochs = 0, .steps = 20};
  const data::Dataset mixed = ragged_data().mixup(0.4);
  const Outcome one = train(1, plain_network(), mixed,
                            {.optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}}, fit);
  const Outcome plain = train(1, plain_network(), ragged_data(),
                              {.optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}}, fit);
  EXPECT_NE(one.parameter_hash, plain.parameter_hash);
  for (const int replicas : {2, 3})
    for (const int accumulate : {1, 3}) {
      const TrainerOptions options{
          .optimizer = model::Sgd{}, .schedule = {.peak = 0.1F}, .accumulate = accumulate};
      const Outcome several = train(replicas, plain_network(), mixed, options, fit);
      expect_close(several.losses, one.losses, 1e-5);
      expect_close(several.parameters, one.parameters, 1e-5);
    }
}

class Accumulation : public ::testing::TestWithParam<std::tuple<int, int>> {};

void expect_the_same_in_pieces(TrainerOptions options, int accumulate, int replicas,
                               double tolerance) {
  const FitOptions fit{.epochs = 0, .steps = 50};
  const Outcome whole = train(1, dropout_network(), ragged_data(), options, fit);
  options.accumulate = accumulate;
  const Outcome pieces = train(replicas, dropout_network(), ragged_data(), options, fit);
  expect_close(pieces.losses, whole.losses, 1e-5);
  expect_close(pieces.parameters, whole.parameters, tolerance);
}

TEST_P(Accumulation, DoesNotChangeTheResult) {
  const auto [accumulate, replicas] = GetParam();
  expect_the_same_in_pieces({.optimizer = model::Sgd{.momentum = 0.9F}}, accumulate, replicas,
                            1e-6);
}

TEST_P(Accumulation, DoesNotChangeTheResultOfLayerWiseRates) {
  const auto [accumulate, replicas] = GetParam();
  expect_the_same_in_pieces(
      {.optimizer = model::Lars{.trust_coefficient = 0.1F}, .schedule = {.peak = 0.1F}}, accumulate,
      replicas, 1e-6);
  // As with Adam, the step of an element may be due to rounding only.
  expect_the_same_in_pieces({.optimizer = model::Lamb{}, .schedule = {.peak = 0.01F}}, accumulate,
                            replicas, 1e-4);
}

TEST_P(Accumulation, DoesNotChangeTheResultOfWeights) {
  const auto [accumulate, replicas] = GetParam();
  expect_the_same_in_pieces({.class_weights = {1, 2, 0.5F, 0.25F}, .optimizer = model::Sgd{}},
                            accumulate, replicas, 1e-6);
}

TEST_P(Accumulation, DoesNotChangeTheResultOfASharedTable) {
  const auto [accumulate, replicas] = GetParam();
  const FitOptions fit{.epochs = 0, .steps = 20};
  TrainerOptions options = tied().options;
  const Outcome whole = train(1, tied_network(), ragged_words(), options, fit);
  options.accumulate = accumulate;
  const Outcome pieces = train(replicas, tied_network(), ragged_words(), options, fit);
  expect_close(pieces.losses, whole.losses, 1e-5);
  expect_close(pieces.parameters, whole.parameters, 1e-5);
}

std::string name_of_pieces(const ::testing::TestParamInfo<Accumulation::ParamType>& info) {
  const auto [accumulate, replicas] = info.param;
  return fmt::format("micro_batches_{}_replicas_{}", accumulate, replicas);
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, Accumulation,
                         ::testing::Combine(::testing::Values(2, 4, 7), ::testing::Values(1, 2)),
                         name_of_pieces);

/// The squared distance from the label as a vector of 0 and 1.
class DistanceFromLabel final : public model::CustomLoss {
 public:
  double value(std::span<const float> outputs, const model::SampleTargets& targets) const override {
    double sum = 0;
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      const auto difference = static_cast<double>(difference_of(outputs, targets, k));
      sum += difference * difference;
    }
    return sum;
  }
  void gradient(std::span<const float> outputs, const model::SampleTargets& targets,
                std::span<float> gradient) const override {
    for (std::size_t k = 0; k < outputs.size(); ++k)
      gradient[k] = 2 * difference_of(outputs, targets, k);
  }

 private:
  static float difference_of(std::span<const float> outputs, const model::SampleTargets& targets,
                             std::size_t k) {
    return outputs[k] - (static_cast<std::size_t>(targets.label) == k ? 1.0F : 0.0F);
  }
};

TEST(UserDefinedLoss, IsTheSameForAnyNumberOfReplicas) {
  const TrainerOptions options{.loss = std::make_shared<DistanceFromLabel>(),
                               .optimizer = model::Sgd{},
                               .schedule = {.peak = 0.02F}};
  const Outcome one = train(1, plain_network(), ragged_data(), options, {.epochs = 2});
  const Outcome three = train(3, plain_network(), ragged_data(), options, {.epochs = 2});
  expect_close(three.losses, one.losses, 1e-5);
  EXPECT_LT(one.history.epochs[1].metrics.loss(), one.history.epochs[0].metrics.loss());
  EXPECT_FALSE(one.history.epochs[1].metrics.has_accuracy());
}

TEST(SeveralOutputs, AreReportedTheSameForAnyNumberOfReplicasAndMicroBatches) {
  const FitOptions fit{.epochs = 3, .validation = house_data(41).batch(10)};
  const Outcome one = train(1, house_network(), ragged_houses(), house_options(), fit);
  const EpochLogs& expected = one.history.epochs.back();
  const auto value = [](const EpochLogs& logs, const char* name) {
    const auto found = logs.metric(name);
    EXPECT_TRUE(found) << name;
    return found.value_or(NAN);
  };
  // Both losses have the same sample weights, so the means add up like the sums.
  EXPECT_NEAR(value(expected, "loss"),
              value(expected, "kind_loss") + 0.5 * value(expected, "cost_loss"), 1e-6);
  EXPECT_EQ(value(expected, "accuracy"), value(expected, "kind_accuracy"));
  EXPECT_FALSE(expected.metric("cost_accuracy"));
  EXPECT_LT(value(expected, "cost_loss"), value(one.history.epochs.front(), "cost_loss"));
  EXPECT_LT(value(expected, "kind_loss"), value(one.history.epochs.front(), "kind_loss"));
  for (const auto& [replicas, accumulate] : {std::pair(3, 1), std::pair(2, 3)}) {
    TrainerOptions options = house_options();
    options.accumulate = accumulate;
    const Outcome several = train(replicas, house_network(), ragged_houses(), options, fit);
    const EpochLogs& logs = several.history.epochs.back();
    for (const char* name : {"loss", "kind_loss", "cost_loss", "cost_mae", "validation_loss",
                             "validation_kind_loss", "validation_cost_mae"})
      EXPECT_NEAR(value(logs, name), value(expected, name), 1e-5) << name << replicas;
    EXPECT_EQ(value(logs, "kind_accuracy"), value(expected, "kind_accuracy"));
    expect_close(several.parameters, one.parameters, 1e-5);
  }
}

TEST(ClassWeights, OnlyRatiosMatter) {
  const FitOptions fit{.epochs = 1};
  const auto with = [&](std::vector<float> weights) {
    return train(2, plain_network(), ragged_data(),
                 {.class_weights = std::move(weights), .optimizer = model::Sgd{}}, fit);
  };
  const Outcome plain = with({});
  for (const float all : {1.0F, 2.0F, 0.25F}) {  // powers of 2 do not round
    const Outcome same = with({all, all, all, all});
    EXPECT_EQ(same.parameter_hash, plain.parameter_hash) << all;
    expect_close(same.losses, plain.losses, 1e-7);
  }
  EXPECT_NE(with({1, 1, 1, 2}).parameter_hash, plain.parameter_hash);
}

TEST(Equivalence, HoldsForABatchSmallerThanTheReplicas) {
  const FitOptions fit{.epochs = 0, .steps = 20};
  const data::Dataset dataset = small_data(41).batch(2);
  const Outcome one = train(1, plain_network(), dataset, {}, fit);
  const Outcome four = train(4, plain_network(), dataset, {}, fit);
  expect_close(four.losses, one.losses, 1e-5);
  expect_close(four.parameters, one.parameters, 1e-4);
}

TEST(Equivalence, SameSeedIsBitwiseEqual) {
  const FitOptions fit{.epochs = 2};
  for (const model::OptimizerOptions& optimizer :
       {model::OptimizerOptions(model::Adam{}), model::OptimizerOptions(model::Lamb{})})
    for (const int replicas : {1, 3}) {
      const TrainerOptions options{.optimizer = optimizer};
      const Outcome first = train(replicas, dropout_network(), ragged_data(), options, fit);
      const Outcome second = train(replicas, dropout_network(), ragged_data(), options, fit);
      EXPECT_EQ(first.parameter_hash, second.parameter_hash)
          << replicas << " replicas, " << to_string(optimizer);
      EXPECT_EQ(first.losses, second.losses);
    }
}

TEST(Equivalence, RecomputationIsBitwiseEqual) {
  model::Network network({16}, "deep");
  for (int block = 0; block < 6; ++block) {
    network.add(model::Dense({.units = 16}));
    network.add(model::BatchNormalization());
    network.add(model::ReLU());
    network.add(model::Dropout({.rate = 0.2F}));
  }
  network.add(model::Dense({.units = kClasses}));
  for (const int replicas : {1, 3})
    for (const int accumulate : {1, 2})
      for (const char* scope : {"local", "sync"}) {
        TrainerOptions options{.optimizer = model::Adam{},
                               .accumulate = accumulate,
                               .normalization = parse_normalization_scope(scope)};
        const Outcome kept = train(replicas, network, ragged_data(), options, {.epochs = 2});
        options.compute.recompute = model::Recompute::blocks;
        const Outcome again = train(replicas, network, ragged_data(), options, {.epochs = 2});
        EXPECT_EQ(again.parameter_hash, kept.parameter_hash)
            << replicas << " replicas, " << accumulate << " micro-batches, " << scope;
        EXPECT_EQ(again.losses, kept.losses);
        EXPECT_EQ(again.buffers, kept.buffers);
      }
}

TEST(Equivalence, SeedsDiffer) {
  const FitOptions fit{.epochs = 1};
  EXPECT_NE(train(1, plain_network(), ragged_data(), {.seed = 1}, fit).parameter_hash,
            train(1, plain_network(), ragged_data(), {.seed = 2}, fit).parameter_hash);
}

TEST(Equivalence, ReducesEachBucketOncePerStepForAnyMicroBatches) {
  for (const int accumulate : {1, 4}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, 2);
    // Small buckets, so that there are several.
    LocalReplicas replicas(*strategy, std::make_shared<const model::Network>(plain_network()),
                           {.loss = {},
                            .optimizer = model::Sgd{},
                            .accumulate = accumulate,
                            .buckets = {.first_bytes = 64, .bytes = 64}});
    replicas.initialize(1);
    const auto stream = ragged_data().stream({.last_step = 5, .replicas = 2, .local_replicas = 2});
    std::vector<data::Batch> parts;
    std::int64_t steps = 0;
    while (stream->next(parts)) {
      replicas.run([&](Replica& replica, int local) {
        replica.train_step(parts[static_cast<std::size_t>(local)],
                           {.step = steps, .learning_rate = 0.1F});
      });
      ++steps;
    }
    const std::size_t buckets = replicas[0].buckets().buckets().size();
    EXPECT_GT(buckets, 2U);
    EXPECT_EQ(replicas[0].buckets().launched(), buckets * 5) << accumulate << " micro-batches";
  }
}

}  // namespace
}  // namespace lockstep::inline v0::train
