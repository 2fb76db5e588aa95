#include "lockstep/model/compiled/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/compiled/generation.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::HasSubstr;
using Sequence = std::vector<std::int32_t>;

constexpr std::int32_t kTokenKinds = 4;
constexpr std::int32_t kEndToken = 2;

/// A model whose logits are random numbers for each sequence. With `steps`, they are multiples of 1
/// / steps, so that many are equal.
class MadeUpModel {
 public:
  explicit MadeUpModel(std::uint64_t seed, float steps = 0) : seed_(seed), steps_(steps) {}

  std::span<const float> operator()(std::span<const std::int32_t> tokens) {
    std::uint64_t key = seed_;
    for (const std::int32_t token : tokens) key = key * 7 + static_cast<std::uint64_t>(token) + 1;
    logits_ = numbers(kTokenKinds, key);
    for (float& logit : logits_)
      logit = steps_ > 0 ? std::round(logit * steps_) / steps_ : 2 * logit;
    return logits_;
  }

 private:
  std::uint64_t seed_;
  float steps_;
  std::vector<float> logits_;
};

/// All sequences with their scores, in descending order.
std::vector<Beam> all_sequences(MadeUpModel model, const BeamOptions& options) {
  std::vector<Beam> all;
  std::vector<Beam> open(1);
  const auto add = [&](Beam beam, std::int64_t length) {
    beam.score = beam.log_probability /
                 std::pow((5.0 + static_cast<double>(length)) / 6, options.length_penalty);
    all.push_back(std::move(beam));
  };
  for (std::int64_t length = 1; length <= options.tokens; ++length) {
    std::vector<Beam> longer;
    for (const Beam& beam : open) {
      const std::span<const float> logits = model(beam.tokens);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      for (std::int32_t token = 0; token < kTokenKinds; ++token) {
        Beam next = beam;
        next.log_probability +=
            static_cast<double>(logits[static_cast<std::size_t>(token)]) - std::log(sum);
        next.has_ended = token == options.end;
        if (next.has_ended) {
          add(std::move(next), length);
          continue;
        }
        next.tokens.push_back(token);
        longer.push_back(std::move(next));
      }
    }
    open = std::move(longer);
  }
  for (Beam& beam : open) add(std::move(beam), options.tokens);
  std::ranges::stable_sort(all, [](const Beam& a, const Beam& b) { return a.score > b.score; });
  return all;
}

TEST(BeamSearch, IsExhaustiveWithAllBeams) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const double penalty : {0.0, 0.6, 2.0}) {
      const BeamOptions options{
          .beams = 400, .tokens = 4, .end = kEndToken, .length_penalty = penalty};
      MadeUpModel model(seed);
      const std::vector<Beam> found = beam_search(std::ref(model), options);
      const std::vector<Beam> expected = all_sequences(MadeUpModel(seed), options);
      ASSERT_EQ(found.size(), expected.size());
      double probability = 0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].tokens, expected[i].tokens) << seed << " " << i;
        EXPECT_EQ(found[i].has_ended, expected[i].has_ended);
        EXPECT_NEAR(found[i].score, expected[i].score, 1e-12);
        probability += std::exp(found[i].log_probability);
      }
      EXPECT_NEAR(probability, 1, 1e-12);
    }
}

TEST(BeamSearch, IsGreedyWithOneBeam) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    MadeUpModel model(seed);
    Sequence greedy;
    std::int32_t last = -1;
    while (greedy.size() < 6 && last != kEndToken) {
      last = sample_token(model(greedy), {.temperature = 0}, 0);
      if (last != kEndToken) greedy.push_back(last);
    }
    const std::vector<Beam> found =
        beam_search(std::ref(model), {.beams = 1, .tokens = 6, .end = kEndToken});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].tokens, greedy) << seed;
    EXPECT_EQ(found[0].has_ended, last == kEndToken);
  }
}

// More beams find sequences that are at least as good, in all of these models.
TEST(BeamSearch, FindsBetterSequencesWithMoreBeams) {
  int better = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const BeamOptions options{.tokens = 5, .end = kEndToken};
    const auto best = [&](std::int64_t beams) {
      BeamOptions of = options;
      of.beams = beams;
      return beam_search(MadeUpModel(seed), of).front().score;
    };
    const double all = all_sequences(MadeUpModel(seed), options).front().score;
    better += best(16) > best(1) + 1e-9 ? 1 : 0;
    EXPECT_NEAR(best(300), all, 1e-12);
    EXPECT_LE(best(4), all + 1e-12);
  }
  EXPECT_GT(better, 3);
}

TEST(BeamSearch, PrefersLongerSequencesWithAPenalty) {
  std::size_t without = 0;
  std::size_t with = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto length = [&](double penalty) {
      return beam_search(MadeUpModel(seed),
                         {.beams = 8, .tokens = 6, .end = kEndToken, .length_penalty = penalty})
          .front()
          .tokens.size();
    };
    without += length(0);
    with += length(2);
  }
  EXPECT_GT(with, without);
}

TEST(BeamSearch, OrdersEqualSequencesByTheirTokens) {
  const std::vector<float> same(kTokenKinds);
  const std::vector<Beam> found =
      beam_search([&](std::span<const std::int32_t>) { return std::span<const float>(same); },
                  {.beams = 4, .tokens = 2, .end = std::nullopt});
  std::vector<Sequence> tokens;
  for (const Beam& beam : found) tokens.push_back(beam.tokens);
  EXPECT_EQ(tokens, (std::vector<Sequence>{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const BeamOptions options{.beams = 3, .tokens = 5, .end = kEndToken};
    const std::vector<Beam> first = beam_search(MadeUpModel(seed, 1), options);
    const std::vector<Beam> second = beam_search(MadeUpModel(seed, 1), options);
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].tokens, second[i].tokens);
      if (i == 0) continue;
      const bool is_same = !(first[i - 1].score > first[i].score);
      EXPECT_TRUE(!is_same || first[i - 1].tokens < first[i].tokens) << seed;
    }
  }
}

TEST(BeamSearch, StopsWhenNoResultCanImprove) {
  int passes = 0;
  std::vector<float> ends(kTokenKinds);
  ends[kEndToken] = 20;
  const std::vector<Beam> found = beam_search(
      [&](std::span<const std::int32_t>) {
        ++passes;
        return std::span<const float>(ends);
      },
      {.beams = 1, .tokens = 1000, .end = kEndToken});
  EXPECT_EQ(passes, 1);
  EXPECT_TRUE(found.at(0).tokens.empty());
  EXPECT_TRUE(found.at(0).has_ended);
}

TEST(BeamSearch, RejectsOptionsOutOfRange) {
  const auto refusal = [](const BeamOptions& options) {
    return input_error_of([&] { beam_search(MadeUpModel(1), options); });
  };
  EXPECT_EQ(refusal({.beams = 0}), "[generate] expected at least one beam, got 0");
  EXPECT_EQ(refusal({.tokens = 0}), "[generate] expected at least one token, got 0");
  for (const double penalty : {-1.0, std::numeric_limits<double>::infinity()})
    EXPECT_THAT(refusal({.length_penalty = penalty}),
                HasSubstr("expected a length penalty of at least 0, got "));
  const std::vector<float> wrong = {0, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_THAT(
      error_of(ErrorCategory::checkpoint,
               [&] {
                 beam_search(
                     [&](std::span<const std::int32_t>) { return std::span<const float>(wrong); },
                     {});
               }),
      HasSubstr("expected finite logits"));
}

// A gpt recomputes only what its sequences do not share; the results match full passes.
TEST(BeamSearch, MatchesFullPassesWithAGenerator) {
  const zoo::DataInput inputs[] = {
      {{.name = "tokens", .shape = {6}, .type = ElementType::int32}, 5}};
  Trial trial(zoo::gpt(inputs, {.layers = 2, .width = 8, .heads = 2}), 1);
  const auto found = [&](Generator::Passes passes) {
    Generator generator(trial.model(), 5, passes);
    generator.start({1, 3});
    std::vector<Sequence> tokens;
    for (const Beam& beam : beam_search(generator, {.beams = 5, .tokens = 7, .end = 4}))
      tokens.push_back(beam.tokens);
    return tokens;
  };
  EXPECT_EQ(found(Generator::Passes::incremental), found(Generator::Passes::full));
  EXPECT_EQ(found(Generator::Passes::incremental).size(), 5U);
}

/// Logits: an embedding plus the input "hints" [4, 5].
Network hinted_network() {
  Network network({{.name = "hints", .shape = {4, 5}},
                   {.name = "tokens", .shape = {4}, .type = ElementType::int32}},
                  "hinted");
  const NodeId rows =
      network.add(Embedding({.vocabulary = 5, .dimension = 5}), {network.input("tokens")});
  network.add(Add(), {rows, network.input("hints")});
  return network;
}

TEST(GeneratorInAContext, ReadsFurtherInputsOfTheNetwork) {
  device::HostAllocator allocator;
  CompiledModel model(std::make_shared<const Network>(hinted_network()), device::Device{},
                      allocator, {});
  model.initialize(1);
  std::ranges::fill(model.parameters(), 0.0f);
  model.parameters_changed();
  Generator generator(model, 5);
  ASSERT_EQ(generator.context().size(), 1U);
  EXPECT_EQ(generator.context()[0].name, "hints");
  EXPECT_EQ(generator.positions(), 4);
  std::vector<float> hints(20);
  const Sequence expected = {3, 1, 4, 2};
  for (std::size_t i = 0; i < 4; ++i) hints[i * 5 + static_cast<std::size_t>(expected[i])] = 9;
  generator.start({0}, {{.features = hints}});
  for (const std::int32_t token : expected) EXPECT_EQ(generator.next({.temperature = 0}), token);
  generator.start({0}, {{.features = hints}});
  EXPECT_EQ(beam_search(generator, {.beams = 3, .tokens = 3}).front().tokens, (Sequence{3, 1, 4}));
  EXPECT_EQ(input_error_of([&] { generator.start({0}); }),
            "[generate] expected a context of 1 further input, got 0");
  EXPECT_EQ(
      input_error_of([&] { generator.start({0}, {{.features = std::span(hints).first(3)}}); }),
      "[generate] expected 20 elements of the input \"hints\", got 3");
}

}  // namespace
}  // namespace lockstep::inline v0::model
