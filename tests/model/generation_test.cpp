#include "lockstep/model/compiled/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/numbers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

const std::vector<float> kLogits = {0.5f, 2, -1, 2, 1, -3};

/// The probability of each token by the definitions, one restriction after the other.
std::vector<double> probabilities(const SamplingOptions& options) {
  std::vector<std::size_t> order(kLogits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [](auto a, auto b) { return kLogits[a] > kLogits[b]; });
  if (options.top_k > 0) order.resize(static_cast<std::size_t>(options.top_k));
  std::vector<double> all(kLogits.size());
  double sum = 0;
  for (const std::size_t token : order)
    sum += all[token] = std::exp(static_cast<double>(kLogits[token]) / options.temperature);
  double before = 0;  // the probability of more probable tokens
  double kept = 0;
  for (const std::size_t token : order) {
    const double probability = all[token] / sum;
    if (before >= options.top_p) all[token] = 0;
    before += probability;
    kept += all[token];
  }
  for (double& probability : all) probability /= kept;
  return all;
}

TEST(SampleToken, DrawsFromTheRemainingProbabilities) {
  constexpr int kDraws = 20'000;
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.5}, SamplingOptions{.temperature = 3},
        SamplingOptions{.top_k = 1}, SamplingOptions{.top_k = 3}, SamplingOptions{.top_p = 0.5},
        SamplingOptions{.top_p = 0.9}, SamplingOptions{.temperature = 2, .top_k = 4, .top_p = 0.7},
        SamplingOptions{.seed = 7}}) {
    SCOPED_TRACE(testing::Message() << options.temperature << " " << options.top_k << " "
                                    << options.top_p << " " << options.seed);
    std::vector<double> counts(kLogits.size());
    for (int position = 0; position < kDraws; ++position)
      ++counts[static_cast<std::size_t>(sample_token(kLogits, options, position))];
    const std::vector<double> expected = probabilities(options);
    for (std::size_t token = 0; token < kLogits.size(); ++token) {
      const double p = expected[token];
      EXPECT_NEAR(counts[token] / kDraws, p, 5 * std::sqrt(p * (1 - p) / kDraws)) << token;
    }
  }
}

TEST(SampleToken, ReturnsTheFirstLargestAtTemperatureZero) {
  for (std::int64_t position = 0; position < 20; ++position)
    EXPECT_EQ(sample_token(kLogits, {.temperature = 0, .top_k = 2, .top_p = 0.9}, position), 1);
}

TEST(SampleToken, KeepsOneTokenAtLeast) {
  for (std::int64_t position = 0; position < 20; ++position) {
    EXPECT_EQ(sample_token(kLogits, {.top_p = 0}, position), 1);
    EXPECT_EQ(sample_token(kLogits, {.temperature = 1e-300, .top_k = 1}, position), 1);
    EXPECT_EQ(sample_token(std::vector{3.0f}, {.top_k = 9}, position), 0);
  }
}

TEST(SampleToken, DependsOnSeedAndPositionAlone) {
  const auto drawn = [](std::uint64_t seed) {
    std::vector<std::int32_t> tokens;
    for (std::int64_t position = 0; position < 50; ++position)
      tokens.push_back(sample_token(kLogits, {.seed = seed}, position));
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(SampleToken, RejectsOptionsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [options, message] :
       {std::pair{SamplingOptions{.temperature = -0.5},
                  "[generate] expected a temperature of at least 0, got -0.5"},
        std::pair{SamplingOptions{.temperature = nan},
                  "[generate] expected a temperature of at least 0, got nan"},
        std::pair{SamplingOptions{.top_k = -1}, "[generate] expected top_k of at least 0, got -1"},
        std::pair{SamplingOptions{.top_p = 1.5}, "[generate] expected top_p from 0 to 1, got 1.5"}})
    EXPECT_EQ(input_error_of([&] { sample_token(kLogits, options, 0); }), message);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    try {
      sample_token(std::vector{1.0f, bad}, {.temperature = 0}, 0);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.category(), ErrorCategory::checkpoint);
      EXPECT_THAT(error.what(), HasSubstr("for token 1"));
    }
  }
}

NetworkInput positions(const char* name, std::int64_t length = 4) {
  return {.name = name, .shape = {length}, .type = ElementType::int32};
}

/// Token t + 1 follows token t; the first of 5 follows the last.
Network counting() {
  Network network({positions("tokens")}, "counting");
  network.add(Embedding({.vocabulary = 5, .dimension = 5}));
  return network;
}

void set_counting(Trial& trial) {
  const auto table = trial.parameter("embedding/embeddings");
  for (std::size_t token = 0; token < 5; ++token)
    for (std::size_t next = 0; next < 5; ++next)
      table[token * 5 + next] = next == (token + 1) % 5 ? 9.0f : 0.0f;
  trial.model().parameters_changed();
}

TEST(GeneratorOfTokens, ContinuesASequenceOfAnyLength) {
  Trial trial(counting(), 1);
  set_counting(trial);
  Generator generator(trial.model(), 5);
  for (const std::vector<std::int32_t>& start :
       {std::vector<std::int32_t>{3}, {0, 1, 2, 3}, {4, 4, 4, 4, 4, 4, 3}}) {
    generator.start(start);
    for (const std::int32_t expected : {4, 0, 1, 2, 3, 4})
      EXPECT_EQ(generator.next({.temperature = 0}), expected);
    EXPECT_EQ(generator.tokens().size(), start.size() + 6);
  }
}

TEST(GeneratorOfTokens, ReadsOnlyTheLastPositions) {
  const zoo::DataInput inputs[] = {{positions("tokens"), 5}, {positions("segments"), 0}};
  for (const std::size_t count : {1, 2}) {
    Trial trial(zoo::gpt(std::span(inputs).first(count), {.layers = 1, .width = 8}), 1);
    Generator generator(trial.model(), 5);
    const auto continued = [&](std::vector<std::int32_t> start) {
      const std::size_t size = start.size();
      generator.start(std::move(start));
      for (int i = 0; i < 3; ++i) generator.next({.temperature = 0});
      const auto all = generator.tokens();
      return std::vector<std::int32_t>(all.begin() + static_cast<std::ptrdiff_t>(size), all.end());
    };
    EXPECT_EQ(continued({1, 2, 3, 4}), continued({0, 0, 1, 2, 3, 4}));
    EXPECT_EQ(continued({2, 3, 4}), continued({0, 1, 2, 3, 4})) << "half of them at once";
    // One at a time equals all together.
    const auto three = continued({2});
    EXPECT_EQ(continued({2, three[0]})[0], three[1]);
    EXPECT_EQ(continued({2, three[0], three[1]})[0], three[2]);
  }
}

/// A block as in Llama, with operations that gpt lacks.
Network llama(std::int64_t length, bool causal = true) {
  Network network({positions("tokens", length)}, "llama");
  const NodeId rows = network.add(Embedding({.vocabulary = 5, .dimension = 8}));
  NodeId x =
      network.add(PositionalEmbedding({.kind = PositionalEmbedding::Kind::sinusoidal}), {rows});
  const NodeId normal = network.add(RMSNormalization(), {x});
  const NodeId query = network.add(Dense({.units = 16}), {normal});
  const NodeId key = network.add(Dense({.units = 8}), {normal});
  const NodeId value = network.add(Dense({.units = 8}), {normal});
  network.add(Attention({.heads = 4, .key_value_heads = 2, .causal = causal, .rotary = 100}),
              {query, key, value});
  x = network.add(Add(), {x, network.add(Dense({.units = 8}))});
  network.add(Dense({.units = 12}), {x});
  const NodeId gate = network.add(SiLU());
  network.add(Dense({.units = 12}), {x});
  const NodeId up = network.add(ReLU());
  network.add(Multiply(), {gate, up});
  x = network.add(Add(), {x, network.add(Dense({.units = 8}))});
  network.add(TiedDense({.to = "embedding"}), {network.add(LayerNormalization(), {x})});
  return network;
}

/// Recurrent layers of other cells, and a residual.
Network recurrent_cells(std::int64_t length) {
  Network network({positions("tokens", length)}, "recurrent");
  network.add(Embedding({.vocabulary = 5, .dimension = 6}));
  const NodeId first = network.add(GRU({.units = 6, .return_sequences = true}));
  network.add(SimpleRNN({.units = 3, .return_sequences = true, .use_bias = false}));
  network.add(Add(), {first, network.add(Dense({.units = 6}))});
  network.add(Dense({.units = 5}));
  return network;
}

/// Networks that can compute one position at a time.
std::vector<Network> incremental_networks(std::int64_t length) {
  const zoo::DataInput inputs[] = {{positions("tokens", length), 5},
                                   {positions("segments", length), 0}};
  const zoo::TransformerOptions options{.layers = 2, .width = 8, .heads = 2, .dropout = 0.1f};
  std::vector<Network> networks;
  networks.push_back(zoo::gpt(std::span(inputs).first(1), options));
  networks.push_back(zoo::gpt(inputs, options));
  networks.push_back(llama(length));
  const zoo::LstmOptions lstm{.units = 8, .embedding = 6, .return_sequences = true};
  networks.push_back(zoo::lstm(std::span(inputs).first(1), 5, lstm));
  networks.push_back(zoo::lstm(inputs, 5, lstm));
  networks.push_back(recurrent_cells(length));
  return networks;
}

/// The logits of each position are the sum of the context and a row of the embedding.
Network with_context(std::int64_t length) {
  Network network({{.name = "by", .shape = {5}}, positions("tokens", length)}, "with_context");
  const NodeId by = network.add(Reshape({.shape = {1, 5}}));
  const NodeId rows = network.add(Embedding({.vocabulary = 5, .dimension = 5}), {-2});
  std::vector<NodeId> repeated(static_cast<std::size_t>(length), by);
  const NodeId each = network.add(Concatenate({.axis = 1}), repeated);
  network.add(Add(), {each, rows});
  return network;
}

TEST(GeneratorOfTokens, ReadsAContext) {
  Trial trial(with_context(4), 1);
  std::ranges::fill(trial.parameter("embedding/embeddings"), 0.0f);
  trial.model().parameters_changed();
  Generator generator(trial.model(), 5);
  for (const std::size_t favourite : {3, 1}) {
    std::vector<float> context(5);
    context[favourite] = 1;
    generator.start({0}, {{.features = context}});
    for (int i = 0; i < 6; ++i)
      EXPECT_EQ(generator.next({.temperature = 0}), static_cast<std::int32_t>(favourite));
  }
  EXPECT_EQ(generator.context().size(), 1u);
  EXPECT_EQ(input_error_of([&] { generator.start({0}); }),
            "[generate] expected a context of 1 further input, got 0");
}

TEST(IncrementalPasses, ComputeTheRowsOfAFullPass) {
  constexpr std::int64_t kLength = 70;
  const std::vector<std::int32_t> tokens = labels(kLength, 5, 3);
  const std::vector<std::int32_t> segments(kLength, 1);
  for (Network& network : incremental_networks(kLength)) {
    Trial trial(std::move(network), 1);
    CompiledModel& model = trial.model();
    SCOPED_TRACE(model.network().name());
    ASSERT_TRUE(model.is_incremental());
    InputView inputs[2];
    const BatchView batch{.samples = 1,
                          .inputs = std::span(inputs).first(model.network().inputs().size())};
    const auto read = [&](std::int64_t first, std::int64_t count) {
      const auto part = [&](const std::vector<std::int32_t>& all) {
        return std::span(all).subspan(static_cast<std::size_t>(first),
                                      static_cast<std::size_t>(count));
      };
      inputs[0].indices = part(tokens);
      inputs[1].indices = part(segments);
    };
    std::vector<std::vector<float>> expected;
    read(0, kLength);
    for (std::int64_t row = 0; row < kLength; ++row) {
      const std::span<const float> logits = model.predict_row(batch, row);
      expected.emplace_back(logits.begin(), logits.end());
    }
    for (const std::int64_t count : {1, 7, 64}) {  // 7 of the 64 are recomputed
      device::Buffer cache;
      for (std::int64_t begin = 0; begin < kLength; begin += count) {
        const std::int64_t first = std::min(begin, kLength - count);
        read(first, count);
        for (const std::int64_t row : {first, first + count - 1}) {
          const std::span<const float> logits =
              model.predict_row(batch, row, {.first = first, .count = count}, cache);
          EXPECT_THAT(std::vector<float>(logits.begin(), logits.end()),
                      Pointwise(FloatNear(1e-5f), expected[static_cast<std::size_t>(row)]))
              << "row " << row << " in passes of " << count;
        }
      }
    }
  }
}

TEST(IncrementalPasses, GenerateTheTextOfFullPasses) {
  for (const std::int64_t length : {1, 5, 80})
    for (Network& network : incremental_networks(length)) {
      Trial trial(std::move(network), 1);
      SCOPED_TRACE(trial.network().name());
      const auto generated = [&](Generator::Passes passes, std::size_t start, double temperature) {
        Generator generator(trial.model(), 5, passes);
        generator.start({0});
        generator.next({});
        generator.start(labels(start, 5, 2));  // as if there had been no other
        while (std::ssize(generator.tokens()) < 2 * length + 10)
          generator.next({.temperature = temperature});
        return std::vector<std::int32_t>(generator.tokens().begin(), generator.tokens().end());
      };
      for (const std::size_t start : {1, 4, 9})
        for (const double temperature : {0.0, 2.0})
          EXPECT_EQ(generated(Generator::Passes::incremental, start, temperature),
                    generated(Generator::Passes::full, start, temperature))
              << length << " positions, after " << start << " tokens";
    }
}

TEST(IncrementalPasses, StartWithoutTheNaNsOfOtherParameters) {
  Trial trial(llama(4), 1);
  Generator generator(trial.model(), 5);
  const std::span<float> table = trial.parameter("embedding/embeddings");
  const std::vector<float> finite(table.begin(), table.end());
  std::ranges::fill(table, std::numeric_limits<float>::quiet_NaN());
  trial.model().parameters_changed();
  generator.start({1, 2, 3});
  EXPECT_THROW(generator.next({}), Error);
  std::ranges::copy(finite, table.begin());
  trial.model().parameters_changed();
  generator.start({1});
  EXPECT_NO_THROW(generator.next({}));
}

TEST(IncrementalPasses, SupportForwardRecurrentLayersOnly) {
  const auto is_incremental = [](const RecurrentOptions& options) {
    Network network({positions("tokens", 4)});
    network.add(Embedding({.vocabulary = 5, .dimension = 3}));
    network.add(LSTM(options));
    network.add(Dense({.units = 5}));
    return Trial(std::move(network), 1).model().is_incremental();
  };
  EXPECT_TRUE(is_incremental({.units = 3, .return_sequences = true}));
  EXPECT_FALSE(is_incremental({.units = 3}));
  EXPECT_FALSE(is_incremental({.units = 3, .return_sequences = true, .go_backwards = true}));
  EXPECT_FALSE(is_incremental({.units = 3, .return_sequences = true, .bidirectional = true}));
}

TEST(IncrementalPasses, SupportCausalNetworksOnly) {
  Trial trial(llama(4, false), 1);
  EXPECT_FALSE(trial.model().is_incremental());
  Generator generator(trial.model(), 5);
  generator.start({1});
  generator.next({});
  EXPECT_EQ(generator.tokens().size(), 2U);
}

// A network wide enough for multi-threaded kernels.
TEST(GeneratorOfTokens, DoesNotDependOnTheNumberOfThreads) {
  constexpr std::int64_t kKinds = 96;
  const auto drawn = [](Generator::Passes passes, int threads) {
    std::vector<std::int32_t> tokens;
    std::jthread([&] {  // the number of kernel threads is that of the calling thread
      const zoo::DataInput input{positions("tokens", 48), kKinds};
      Trial trial(zoo::gpt({&input, 1}, {.layers = 2, .width = 128}), 1);
      set_thread_budget(threads);
      Generator generator(trial.model(), kKinds, passes);
      generator.start(labels(20, kKinds, 2));
      for (int i = 0; i < 32; ++i) generator.next({.temperature = 4, .seed = 5});
      tokens.assign(generator.tokens().begin(), generator.tokens().end());
    });
    return tokens;
  };
  for (const auto passes : {Generator::Passes::incremental, Generator::Passes::full}) {
    const std::vector<std::int32_t> expected = drawn(passes, 1);
    EXPECT_GT(std::set<std::int32_t>(expected.begin() + 20, expected.end()).size(), 5U)
        << "a text that repeats itself would prove little";
    for (const int threads : {2, 4}) EXPECT_EQ(drawn(passes, threads), expected) << threads;
  }
}

TEST(GeneratorOfTokens, RejectsOtherNetworks) {
  const auto refusal = [](Network network, std::int64_t vocabulary = 5) {
    Trial trial(std::move(network), 1);
    return input_error_of([&] { Generator(trial.model(), vocabulary); });
  };
  Network floats({4}, "floats");
  floats.add(Dense({.units = 5}));
  EXPECT_EQ(refusal(std::move(floats)),
            "[floats] expected a network of tokens: one int32 input [T], called tokens if there "
            "are others, and optionally its segments [T], got features [4]");
  Network classifier({positions("tokens")}, "classifier");
  classifier.add(Embedding({.vocabulary = 5, .dimension = 5}));
  classifier.add(Flatten());
  EXPECT_EQ(refusal(std::move(classifier)),
            "[classifier] expected an output [4, 5], a logit of each token for each position, got "
            "[20]");
  EXPECT_THAT(refusal(counting(), 6), HasSubstr("expected an output [4, 6]"));
  Trial trial(counting(), 1);
  Generator generator(trial.model(), 5);
  EXPECT_EQ(input_error_of([&] { generator.start({}); }),
            "[generate] expected at least one initial token, got none");
}

}  // namespace
}  // namespace lockstep::inline v0::model
