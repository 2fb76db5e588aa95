// Losses at each position of a sample: masks, weights, and N replicas.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/metrics/make_metrics.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/strategy/training.h"
#include "tests/support/ranks.h"

namespace lockstep::inline v0::train {
using namespace strategy;
namespace {

using allreduce::error_of;
using ::testing::HasSubstr;

constexpr std::int64_t kPositions = 6;
constexpr std::int64_t kTokens = 5;

/// The tokens of some records, and the next token of each.
struct Texts {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> next;
  std::vector<std::int32_t> lengths;  // length of each record, without padding
  std::vector<float> weights;

  /// Arrays [records, positions].
  data::Dataset dataset(std::int64_t positions = kPositions, bool weighted = false) const {
    return data::Dataset::from_memory(
        {tokens}, {next},
        {.inputs = {{.name = "tokens", .type = ElementType::int32, .shape = {positions}}},
         .targets = {{.name = "next",
                      .type = ElementType::int32,
                      .shape = {positions},
                      .classes = kTokens}},
         .weighted = weighted},
        weighted ? weights : std::vector<float>());
  }
};

/// Records `first`, `first` + 1, … of 0 to 6 tokens; those before `first_unmasked` have no labels.
Texts texts(int first, int records, int first_unmasked = 0) {
  Texts all;
  for (int id = first; id < first + records; ++id) {
    std::mt19937 random(static_cast<unsigned>(id));
    const auto length = static_cast<std::int32_t>(id % 7);
    auto token = static_cast<std::int32_t>(random() % kTokens);
    all.lengths.push_back(length);
    all.weights.push_back(static_cast<float>(random() % 4) / 2);
    for (std::int32_t i = 0; i < kPositions; ++i) {
      const bool is_padding = i >= length;
      all.tokens.push_back(is_padding ? 0 : token);
      token = static_cast<std::int32_t>((token + (random() % 4 == 0 ? 1 : 2)) % kTokens);
      all.next.push_back(is_padding || id < first_unmasked ? kMasked : token);
    }
  }
  return all;
}

model::Network sequence_network(std::int64_t positions = kPositions) {
  model::Network network({{.name = "tokens", .shape = {positions}, .type = ElementType::int32}},
                         "sequence");
  network.add(model::Embedding({.vocabulary = kTokens, .dimension = 8}));
  network.add(model::Tanh());
  network.add(model::Conv1D({.filters = kTokens, .kernel = 1}));
  return network;
}

void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], 1e-4) << "element " << i;
}

void expect_near(const std::vector<double>& losses, const std::vector<double>& expected) {
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (std::isnan(expected[i]))  // a step of masked positions
      EXPECT_TRUE(std::isnan(losses[i])) << "step " << i;
    else
      EXPECT_NEAR(losses[i], expected[i], 1e-5 * std::abs(expected[i])) << "step " << i;
}

TrainerOptions sgd(int accumulate = 1) {
  return {.optimizer = model::Sgd{.momentum = 0.9F},
          .schedule = {.peak = 0.2F},
          .clip_norm = 0.5,
          .accumulate = accumulate};
}

/// Batches of 10 of 61 records: the last has one, and no two replicas as many labels.
TEST(Sequences, OfAnyNumberOfReplicasAndMicroBatchesHaveTheSameLosses) {
  const FitOptions fit{.epochs = 0, .steps = 20};
  for (const bool weighted : {false, true}) {
    const data::Dataset data = texts(0, 61).dataset(kPositions, weighted).shuffle().batch(10);
    for (const std::vector<float>& class_weights :
         {std::vector<float>(), std::vector<float>{1, 2, 0.5F, 0, 1}}) {
      TrainerOptions options = sgd();
      options.class_weights = class_weights;
      const Outcome one = train(1, sequence_network(), data, options, fit);
      ASSERT_EQ(one.losses.size(), 20U);
      EXPECT_LT(one.losses.back(), one.losses.front());
      for (const auto& [replicas, accumulate] : {std::pair(2, 1), {3, 1}, {1, 3}, {3, 2}}) {
        SCOPED_TRACE(fmt::format("{} replicas, {} micro-batches, {}, {}", replicas, accumulate,
                                 weighted, class_weights.size()));
        options.accumulate = accumulate;
        const Outcome several = train(replicas, sequence_network(), data, options, fit);
        expect_near(several.losses, one.losses);
        expect_near(several.parameters, one.parameters);
        for (std::size_t i = 0; i < one.steps.size(); ++i) {
          EXPECT_EQ(several.steps[i].metrics.samples, one.steps[i].metrics.samples);
          EXPECT_EQ(several.steps[i].metrics.positions(), one.steps[i].metrics.positions());
          EXPECT_EQ(several.steps[i].metrics.rows(), kPositions * one.steps[i].metrics.samples);
          EXPECT_NEAR(several.steps[i].gradient_norm, one.steps[i].gradient_norm,
                      1e-5 * one.steps[i].gradient_norm);
        }
      }
    }
  }
}

/// The texts of 0 to 6 tokens are sorted by length, so that micro-batches have very different
/// numbers of them: their means would differ from the mean over all tokens.
TEST(Sequences, OfMicroBatchesAreDividedByTheTokensOfTheGlobalBatch) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> next;
  for (int batch = 0; batch < 6; ++batch)
    for (const int length : {0, 0, 1, 1, 1, 2, 3, 5, 6, 6, 6, 6}) {
      const Texts text = texts(7 * static_cast<int>(tokens.size()) + length, 1);
      ASSERT_EQ(text.lengths.front(), length);
      tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
      next.insert(next.end(), text.next.begin(), text.next.end());
    }
  const data::Dataset data = Texts{tokens, next, {}, {}}.dataset().batch(12);
  TrainerOptions options{.optimizer = model::Sgd{}, .schedule = {.peak = 0.2F}};
  const Outcome one = train(1, sequence_network(), data, options, {.epochs = 1});
  ASSERT_EQ(one.losses.size(), 6U);
  EXPECT_EQ(one.steps[0].metrics.positions(), 37);
  for (const int replicas : {1, 3})
    for (const int accumulate : {1, 2, 4}) {
      SCOPED_TRACE(fmt::format("{} replicas, {} micro-batches", replicas, accumulate));
      options.accumulate = accumulate;
      const Outcome several = train(replicas, sequence_network(), data, options, {.epochs = 1});
      ASSERT_EQ(several.parameters.size(), one.parameters.size());
      for (std::size_t i = 0; i < one.parameters.size(); ++i)
        EXPECT_NEAR(several.parameters[i], one.parameters[i], 1e-6) << i;
      for (std::size_t i = 0; i < one.losses.size(); ++i)
        EXPECT_NEAR(several.losses[i], one.losses[i], 1e-6) << i;
    }
}

/// Masking trailing positions equals a shorter network.
TEST(Sequences, LearnOnlyFromUnmaskedPositions) {
  Texts masked = texts(0, 60);
  Texts cut;
  for (std::size_t i = 0; i < masked.tokens.size(); ++i) {
    masked.next[i] = static_cast<std::int32_t>((masked.tokens[i] + 1) % kTokens);
    if (i % kPositions < 2) {
      cut.tokens.push_back(masked.tokens[i]);
      cut.next.push_back(masked.next[i]);
    } else {
      masked.next[i] = kMasked;
    }
  }
  for (const int replicas : {1, 3}) {
    const Outcome expected =
        train(replicas, sequence_network(2), cut.dataset(2).batch(10), sgd(), {.epochs = 3});
    const Outcome outcome =
        train(replicas, sequence_network(), masked.dataset().batch(10), sgd(), {.epochs = 3});
    expect_near(outcome.losses, expected.losses);
    expect_near(outcome.parameters, expected.parameters);
    const EpochLogs& epoch = outcome.history.epochs.back();
    EXPECT_EQ(epoch.samples, 60);
    EXPECT_EQ(epoch.metrics.samples, 60);
    EXPECT_EQ(epoch.metrics.positions(), 120);
    EXPECT_EQ(epoch.metrics.accuracy(), expected.history.epochs.back().metrics.accuracy());
    EXPECT_LT(outcome.losses.back(), outcome.losses.front());
  }
}

TEST(Sequences, LearnNothingFromAMaskedStep) {
  const auto part = [](int first, int records, int first_unmasked) {
    return texts(first, records, first_unmasked).dataset();
  };
  // 12 is divisible by all numbers of replicas; otherwise the largest part depends on the step.
  for (const int replicas : {1, 2, 3}) {
    const Outcome expected =
        train(replicas, sequence_network(), part(0, 12, 0).concatenate(part(24, 24, 0)).batch(12),
              sgd(), {.epochs = 1});
    const Outcome outcome =
        train(replicas, sequence_network(),
              part(0, 12, 0).concatenate(part(12, 12, 24)).concatenate(part(24, 24, 0)).batch(12),
              sgd(), {.epochs = 1});
    EXPECT_EQ(outcome.parameter_hash, expected.parameter_hash) << replicas;
    ASSERT_EQ(outcome.steps.size(), 4U);
    EXPECT_FALSE(outcome.steps[1].skipped);
    EXPECT_TRUE(std::isnan(outcome.losses[1]));
    EXPECT_EQ(outcome.losses[2], expected.losses[1]);
    const model::MetricSums& sums = outcome.history.epochs[0].metrics;
    EXPECT_EQ(sums.samples, 48);
    EXPECT_EQ(sums.loss(), expected.history.epochs[0].metrics.loss());
    EXPECT_EQ(sums.accuracy(), expected.history.epochs[0].metrics.accuracy());
    EXPECT_EQ(error_of([&] {
                train(replicas, sequence_network(), part(0, 10, 10).batch(10), sgd(), {});
              }),
              "[epoch 1] expected weights whose sum is above 0, got weight 0, or masked labels, at "
              "all 60 positions of 10 samples");
  }
}

TEST(Sequences, ResumeExactly) {
  const data::Dataset data = texts(0, 61).dataset().shuffle().batch(10);
  TrainerOptions options = sgd();
  options.metrics = model::make_metrics("perplexity,top2", options.loss, kTokens);
  const auto run = [&](const checkpoint::ScratchDirectory& directory, std::int64_t steps) {
    FitOptions fit{.epochs = 3, .steps = steps};
    fit.checkpoint.directory = directory.path();
    fit.checkpoint.save_every = 10;
    return train(3, sequence_network(), data, options, fit);
  };
  const checkpoint::ScratchDirectory straight;
  const checkpoint::ScratchDirectory directory;
  const Outcome expected = run(straight, 0);
  run(directory, 10);
  const Outcome resumed = run(directory, 0);
  EXPECT_EQ(resumed.losses.size(), 11U);
  EXPECT_EQ(resumed.parameter_hash, expected.parameter_hash);
  const EpochLogs& epoch = resumed.history.epochs[0];  // resumed in its middle
  const EpochLogs& same = expected.history.epochs[1];
  EXPECT_EQ(epoch.samples, 61);
  EXPECT_EQ(epoch.metrics.rows(), same.metrics.rows());
  EXPECT_EQ(epoch.metrics.positions(), same.metrics.positions());
  EXPECT_EQ(epoch.metrics.correct, same.metrics.correct);
  EXPECT_NEAR(epoch.metrics.loss(), same.metrics.loss(), 1e-9);
  for (const char* name : {"perplexity", "top2"})
    EXPECT_NEAR(epoch.metric(name).value_or(-1), same.metric(name).value_or(-2), 1e-9);
}

TEST(Sequences, AreEvaluatedAtTheirUnmaskedPositions) {
  const Texts all = texts(0, 61);
  const auto unmasked =
      std::ranges::count_if(all.next, [](std::int32_t label) { return label != kMasked; });
  double loss = 0;
  for (const int replicas : {1, 2, 3}) {
    job::Session session(0, nullptr, {.quiet = true});
    const auto strategy = local_strategy(session, replicas);
    TrainerOptions options = sgd();
    options.metrics = model::make_metrics("perplexity,accuracy", options.loss, kTokens);
    Trainer trainer(*strategy, sequence_network(), options);
    const Evaluation sums = trainer.evaluate(all.dataset().batch(10));
    EXPECT_EQ(sums.samples, 61);
    EXPECT_EQ(sums.positions(), unmasked);
    if (replicas == 1) loss = sums.loss();
    EXPECT_NEAR(sums.loss(), loss, 1e-6);
    EXPECT_NEAR(sums.metric("perplexity").value_or(0), std::exp(sums.loss()), 1e-5);
    EXPECT_EQ(sums.values[1].values[0], sums.accuracy());
  }
}

TEST(Sequences, OfDifferentLengthsArePaddedWithMaskedLabels) {
  const Texts all = texts(0, 61);
  Texts ragged = all;
  ragged.tokens.clear();
  ragged.next.clear();
  for (std::size_t i = 0; i < all.tokens.size(); ++i)
    if (all.next[i] != kMasked) {
      ragged.tokens.push_back(all.tokens[i]);
      ragged.next.push_back(all.next[i]);
    }
  const data::Dataset data = data::Dataset::from_memory(
      {{ragged.tokens, ragged.lengths}}, {{ragged.next, ragged.lengths}},
      {.inputs = {{.name = "tokens", .type = ElementType::int32, .shape = {-1}}},
       .targets = {
           {.name = "next", .type = ElementType::int32, .shape = {-1}, .classes = kTokens}}});
  const auto hash_of = [](const data::Dataset& dataset) {
    return train(2, sequence_network(), dataset.batch(10), sgd(), {.epochs = 2}).parameter_hash;
  };
  EXPECT_EQ(hash_of(data.pad("tokens", kPositions).pad("next", kPositions)),
            hash_of(all.dataset()));
}

TEST(Sequences, RequireAClassAtEachPosition) {
  const auto refusal = [](const data::Dataset& data, const TrainerOptions& options = sgd()) {
    return error_of([&] { train(1, sequence_network(), data.batch(10), options, {}); });
  };
  const auto with_target = [](std::vector<std::int64_t> shape, std::int64_t classes) {
    const auto of_each = static_cast<std::size_t>(data::element_count(shape));
    return data::Dataset::from_memory(
        {std::vector<std::int32_t>(60)}, {std::vector<std::int32_t>(10 * of_each)},
        {.inputs = {{.name = "tokens", .type = ElementType::int32, .shape = {kPositions}}},
         .targets = {{.name = "next",
                      .type = ElementType::int32,
                      .shape = std::move(shape),
                      .classes = classes}}});
  };
  const std::string positions =
      "expected class numbers [6], one at each position of the output [6, 5] of model sequence, "
      "got ";
  EXPECT_THAT(refusal(with_target({4}, 5)), HasSubstr(positions + "next [4]"));
  EXPECT_THAT(refusal(with_target({}, 5)), HasSubstr(positions + "next []"));
  EXPECT_THAT(refusal(with_target({6}, 7)),
              HasSubstr("expected 5 classes, the outputs of model sequence, got 7 classes"));
  EXPECT_THAT(error_of([&] { with_target({6}, 5).mixup(0.2); }),
              HasSubstr("expected one input and one label, without weights"));
  TrainerOptions weighted = sgd();
  weighted.class_weights = {1, 2};
  EXPECT_THAT(refusal(with_target({6}, 5), weighted), HasSubstr("expected 5 weights"));
  EXPECT_THAT(
      error_of([&] {
        train(1, plain_network(),
              data::Dataset::from_memory({std::vector<float>(160)}, {std::vector<std::int32_t>(20)},
                                         {.inputs = {{.name = "x", .shape = {16}}},
                                          .targets = {{.name = "y",
                                                       .type = ElementType::int32,
                                                       .shape = {2},
                                                       .classes = kClasses}}},
                                         std::vector<float>())
                  .batch(5),
              {}, {});
      }),
      HasSubstr("expected one class number per sample for the output [4] of model plain, "
                "got y [2]"));
}

}  // namespace
}  // namespace lockstep::inline v0::train
