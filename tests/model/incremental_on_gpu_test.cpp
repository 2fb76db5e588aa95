// Sequences that a GPU computes in parts, with the cached state of previous positions. Runs on
// gpu:0, simulated or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "lockstep/device/gpu.h"
#include "lockstep/model/compiled/generation.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/sides.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr std::int64_t kTokens = 5;

NetworkInput row_of_numbers(std::string name, std::int64_t length) {
  return {.name = std::move(name), .shape = {length}, .type = ElementType::int32};
}

// Grouped heads of an odd number of pairs, rotated; rows that are not whole packs of 16 bytes.
Network grouped_and_rotated(std::int64_t length) {
  Network network({row_of_numbers("tokens", length)}, "grouped_and_rotated");
  network.add(Embedding({.vocabulary = kTokens, .dimension = 7}));
  const NodeId x = network.add(PositionalEmbedding());
  const NodeId query = network.add(Dense({.units = 4 * 6}), {x});
  const NodeId key = network.add(Dense({.units = 2 * 6}), {x});
  const NodeId value = network.add(Dense({.units = 2 * 6}), {x});
  network.add(Attention({.heads = 4, .key_value_heads = 2, .causal = true, .rotary = 100}),
              {query, key, value});
  network.add(Dense({.units = 7}));
  network.add(Add(), {x, network.last()});
  network.add(PositionalEmbedding({.kind = PositionalEmbedding::Kind::sinusoidal}));
  network.add(PositionalEmbedding({.kind = PositionalEmbedding::Kind::constant}));
  network.add(TiedDense({.to = "embedding"}), {network.add(RMSNormalization())});
  return network;
}

// Heads of more elements than a warp has lanes.
Network wide_heads(std::int64_t length) {
  Network network({row_of_numbers("tokens", length)}, "wide_heads");
  network.add(Embedding({.vocabulary = kTokens, .dimension = 8}));
  network.add(Dense({.units = 3 * 70}));
  network.add(Attention({.heads = 1, .causal = true}));
  network.add(Dense({.units = kTokens}));
  return network;
}

std::vector<Network> networks_by_parts(std::int64_t length) {
  const zoo::DataInput inputs[] = {{row_of_numbers("tokens", length), kTokens},
                                   {row_of_numbers("segments", length), 0}};
  const zoo::TransformerOptions options{.layers = 2, .width = 8, .heads = 2, .dropout = 0.1f};
  std::vector<Network> networks;
  networks.push_back(zoo::gpt(std::span(inputs).first(1), options));
  networks.push_back(zoo::gpt(inputs, options));
  networks.push_back(grouped_and_rotated(length));
  networks.push_back(wide_heads(length));
  return networks;
}

class IncrementalOnGpu : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }
};

TEST_P(IncrementalOnGpu, PassesComputeTheRowsOfAFullPass) {
  constexpr std::int64_t kLength = 70;
  const float tolerance = GetParam() == Precision::float32   ? 1e-4f
                          : GetParam() == Precision::float16 ? 0.02f
                                                             : 0.15f;
  const std::vector<std::int32_t> tokens = labels(kLength, kTokens, 3);
  const std::vector<std::int32_t> segments(kLength, 1);
  for (Network& network : networks_by_parts(kLength)) {
    Side side(kGpu, std::make_shared<const Network>(std::move(network)),
              {.precision = GetParam(), .deterministic = true});
    CompiledModel& model = side.model();
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
    std::map<std::int64_t, std::vector<float>> expected;  // by compared row
    const auto full_pass = [&](std::int64_t row) {
      read(0, kLength);
      const std::span<const float> logits = model.predict_row(batch, row);
      return std::vector<float>(logits.begin(), logits.end());
    };
    for (const std::int64_t count : {1, 14, 64}) {  // 58 of the second 64 are computed again
      device::Buffer cache;
      for (std::int64_t begin = 0; begin < (count == 1 ? 4 : kLength); begin += count) {
        const std::int64_t first = std::min(begin, kLength - count);
        const std::int64_t row = first + count - 1;
        if (!expected.contains(row)) expected[row] = full_pass(row);
        read(first, count);
        const std::span<const float> logits =
            model.predict_row(batch, row, {.first = first, .count = count}, cache);
        EXPECT_THAT(std::vector<float>(logits.begin(), logits.end()),
                    Pointwise(FloatNear(tolerance), expected[row]))
            << "row " << row << " in passes of " << count;
      }
    }
  }
}

TEST_P(IncrementalOnGpu, PassesGenerateTheTextOfTheCpu) {
  if (GetParam() != Precision::float32) GTEST_SKIP() << "rounding decides between two tokens";
  for (const std::int64_t length : {1, 5, 12})
    for (Network& network : networks_by_parts(length)) {
      const auto shared = std::make_shared<const Network>(std::move(network));
      SCOPED_TRACE(shared->name());
      const auto generated = [&](device::Device device, Generator::Passes passes) {
        Side side(device, shared, {.deterministic = true});
        Generator generator(side.model(), kTokens, passes);
        generator.start(labels(9, kTokens, 2));
        while (std::ssize(generator.tokens()) < length + 4) generator.next({.temperature = 2});
        return std::vector<std::int32_t>(generator.tokens().begin(), generator.tokens().end());
      };
      const auto expected = generated({}, Generator::Passes::full);
      EXPECT_EQ(generated(kGpu, Generator::Passes::incremental), expected) << length;
      EXPECT_EQ(generated(kGpu, Generator::Passes::full), expected) << length;
    }
}

INSTANTIATE_TEST_SUITE_P(Types, IncrementalOnGpu,
                         testing::Values(Precision::float32, Precision::bfloat16,
                                         Precision::float16),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace lockstep::inline v0::model
