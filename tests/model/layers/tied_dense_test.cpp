// A table shared by an embedding and the outputs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr std::int64_t kVocabulary = 6;
constexpr std::int64_t kTableWidth = 3;

// Words, their rows, a layer between, and a value for each word at each position. Untied: with a
// separate kernel.
Network next_words(bool tied, bool use_bias = false) {
  Network network({{.name = "words", .shape = {4}, .type = ElementType::int32}}, "text");
  network.add(Embedding({.vocabulary = kVocabulary, .dimension = kTableWidth}));
  network.add(Dense({.units = kTableWidth}));
  network.add(Tanh());
  if (tied)
    network.add(TiedDense({.to = "embedding", .use_bias = use_bias}));
  else
    network.add(Dense({.units = kVocabulary, .use_bias = use_bias}));
  return network;
}

TEST(TiedDense, IsADenseWhoseKernelIsTheTable) {
  for (const bool use_bias : {false, true}) {
    Trial tied(next_words(true, use_bias), 3);
    Trial untied(next_words(false, use_bias), 3);
    const auto copy = [&](const char* from, const char* to) {
      std::ranges::copy(tied.parameter(from), untied.parameter(to).begin());
    };
    copy("embedding/embeddings", "embedding/embeddings");
    copy("embedding/embeddings", "dense_1/kernel");
    copy("dense/kernel", "dense/kernel");
    copy("dense/bias", "dense/bias");
    if (use_bias) copy("tied_dense/bias", "dense_1/bias");
    EXPECT_EQ(tied.network().output_shape(), Shape({4, kVocabulary}));
    EXPECT_THAT(tied.predict(), ElementsAreArray(untied.predict()));

    tied.train();
    untied.train();
    const auto row_part = untied.gradient("embedding/embeddings");
    const auto output_part = untied.gradient("dense_1/kernel");
    std::vector<float> sum(row_part.size());
    std::ranges::transform(row_part, output_part, sum.begin(), std::plus());
    EXPECT_THAT(tied.gradient("embedding/embeddings"), Pointwise(FloatNear(1e-6f), sum));
    EXPECT_THAT(tied.gradient("dense/kernel"), ElementsAreArray(untied.gradient("dense/kernel")));
    if (use_bias) {
      EXPECT_THAT(tied.gradient("tied_dense/bias"),
                  ElementsAreArray(untied.gradient("dense_1/bias")));
    }
  }
}

TEST(TiedDense, MatchesFiniteDifferences) {
  expect_gradients_match_differences(next_words(true));
  expect_gradients_match_differences(next_words(true, true));
  Network relu = next_words(true, true);
  relu.add(ReLU());
  expect_gradients_match_differences(std::move(relu), {.step = 1e-3f, .tolerance = 2e-2});
}

TEST(TiedDense, TrainsUnfrozenParameters) {
  using Patterns = std::vector<std::string>;
  for (const Patterns& patterns :
       {Patterns{"embedding/*"}, Patterns{"tied_dense/bias"}, Patterns{"dense/*"},
        Patterns{"embedding/*", "dense/*"}, Patterns{"embedding/*", "tied_dense/*"}}) {
    SCOPED_TRACE(patterns.front());
    Network network = next_words(true, true);
    network.freeze(patterns);
    expect_gradients_match_differences(network);
  }
}

// The output does not depend on the embedding: the other layer writes the whole gradient.
TEST(TiedDense, AcceptsAnEmbeddingWithoutReaders) {
  Network network({{.name = "words", .shape = {4}, .type = ElementType::int32}});
  network.add(Embedding({.vocabulary = 5, .dimension = kTableWidth}), {kInput}, "read");
  network.add(Embedding({.vocabulary = kVocabulary, .dimension = kTableWidth}), {kInput}, "unread");
  network.add(TiedDense({.to = "unread"}), {0});
  Trial trial(network, 3);
  trial.train();
  EXPECT_THAT(trial.gradient("unread/embeddings"), ::testing::Contains(::testing::Ne(0.0f)));
  expect_gradients_match_differences(network);
}

// Both uses contribute, and a later pass does not add to an earlier one.
TEST(TiedDense, ReportsTheGradientOfTheTableOnce) {
  Trial trial(next_words(true, true), 3);
  const std::vector<float> targets(trial.targets());
  const BatchView batch{
      .samples = 3, .indices = trial.indices(), .targets = {.labels = {}, .values = targets}};
  const ParameterTable& table = trial.network().trained();
  std::vector<std::size_t> reported;
  std::map<std::size_t, std::vector<float>> when_reported;
  for (int pass = 0; pass < 2; ++pass)
    trial.model().train_batch(
        batch, {.global_samples = 3}, MeanSquaredError{}, false, [&](std::size_t parameter) {
          reported.push_back(parameter);
          const auto gradient =
              ParameterTable::slice(trial.model().gradients(), table.entries()[parameter]);
          when_reported[parameter].assign(gradient.begin(), gradient.end());
        });
  std::vector<std::size_t> expected(table.entries().size());
  std::iota(expected.begin(), expected.end(), std::size_t{0});
  expected.resize(2 * expected.size());
  std::iota(expected.begin() + std::ssize(expected) / 2, expected.end(), std::size_t{0});
  EXPECT_THAT(reported, ElementsAreArray(expected));
  for (const auto& [parameter, values] : when_reported)
    EXPECT_THAT(trial.gradient(table.entries()[parameter].name), ElementsAreArray(values));
  Trial once(next_words(true, true), 3);
  once.train();
  EXPECT_THAT(trial.gradient("embedding/embeddings"),
              ElementsAreArray(once.gradient("embedding/embeddings")));
}

TEST(TiedDense, AccumulatesMicroBatches) {
  Trial whole(next_words(true), 4);
  whole.train();
  Trial parts(next_words(true), 4);
  const std::vector<float>& targets = parts.targets();
  const auto train = [&](std::size_t sample, bool accumulate) {
    const std::span<const std::int32_t> indices = parts.indices();
    const BatchView batch{.samples = 1,
                          .indices = indices.subspan(sample * 4, 4),
                          .targets = {.labels = {},
                                      .values = std::span(targets).subspan(sample * 4 * kVocabulary,
                                                                           4 * kVocabulary)}};
    parts.model().train_batch(batch, {.global_samples = 4}, MeanSquaredError{}, accumulate);
  };
  for (std::size_t sample = 0; sample < 4; ++sample) train(sample, sample > 0);
  EXPECT_THAT(parts.gradient("embedding/embeddings"),
              Pointwise(FloatNear(1e-6f), whole.gradient("embedding/embeddings")));
}

TEST(TiedDense, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  Trial exact(next_words(true), 3);
  Trial rounded(next_words(true), 3, 1, Precision::bfloat16);
  EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.03f), exact.predict()));
  exact.train();
  rounded.train();
  EXPECT_THAT(rounded.gradient("embedding/embeddings"),
              Pointwise(FloatNear(0.03f), exact.gradient("embedding/embeddings")));
}

TEST(TiedDense, RefusesUnsharableLayers) {
  const auto error = [](const TiedDense::Options& options, std::int64_t width = kTableWidth) {
    return input_error_of([&] {
      Network network = next_words(false);
      network.add(Dense({.units = width}));
      network.add(TiedDense(options));
    });
  };
  const std::string expected =
      "[layer tied_dense (tied_dense)] expected an earlier embedding that no other layer shares: "
      "embedding, got ";
  EXPECT_EQ(error({.to = "embeding"}), expected + "\"embeding\" (did you mean embedding?)");
  EXPECT_EQ(error({.to = "dense"}), expected + "\"dense\"");
  EXPECT_EQ(error({}), expected + "\"\"");
  EXPECT_EQ(error({.to = "embedding"}, 4),
            "[layer tied_dense (tied_dense)] expected an input [..., 3], the dimension of the "
            "embedding embedding, got [4, 4]");
  EXPECT_EQ(input_error_of([] {
              Network network = next_words(true);
              network.add(Dense({.units = kTableWidth}));
              network.add(TiedDense({.to = "embedding"}));
            }),
            "[layer tied_dense_1 (tied_dense)] expected an earlier embedding that no other layer "
            "shares, got \"embedding\", and there is none");
}

}  // namespace
}  // namespace lockstep::inline v0::model
