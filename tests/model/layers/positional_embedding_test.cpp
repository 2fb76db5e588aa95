#include "lockstep/model/layers/embedding/positional_embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/error_of.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"
#include "tests/support/bfloat16.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;
using PositionKind = PositionalEmbedding::Kind;

Network positional_network(PositionKind kind, Shape shape = {3, 5}) {
  Network network(std::move(shape));
  network.add(PositionalEmbedding({.kind = kind}));
  return network;
}

// The table [positions, width] of Vaswani et al.
std::vector<double> sinusoids(int positions, int width) {
  std::vector<double> table;
  for (int t = 0; t < positions; ++t)
    for (int i = 0; i < width; ++i) {
      const double angle = t * std::pow(10000.0, -static_cast<double>(i / 2 * 2) / width);
      table.push_back(i % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  return table;
}

TEST(PositionalEmbeddingLayer, AddsARowToEachPosition) {
  for (const PositionKind kind : {PositionKind::learned, PositionKind::sinusoidal}) {
    Trial trial(positional_network(kind), 4);
    EXPECT_EQ(trial.network().output_shape(), Shape({3, 5}));
    const std::vector<double> fixed = sinusoids(3, 5);
    std::vector<float> expected;
    for (std::size_t i = 0; i < trial.features().size(); ++i) {
      const std::size_t place = i % fixed.size();
      const double added =
          kind == PositionKind::sinusoidal
              ? fixed[place]
              : static_cast<double>(trial.parameter("positional_embedding/embeddings")[place]);
      expected.push_back(static_cast<float>(static_cast<double>(trial.features()[i]) + added));
    }
    EXPECT_THAT(trial.predict(), Pointwise(FloatNear(1e-6f), expected));
  }
}

TEST(PositionalEmbeddingLayer, HasTheGradientsOfItsInputAndTable) {
  for (const PositionKind kind : {PositionKind::learned, PositionKind::sinusoidal}) {
    Network network({3, 4});
    const NodeId shift = network.add(Shift());
    const NodeId placed = network.add(PositionalEmbedding({.kind = kind}));
    network.add(Dense({.units = 2}));
    network.add(Flatten());
    network.add(Dense({.units = 12}));
    network.add(Reshape({.shape = {3, 4}}));
    network.add(Add(), {network.last(), shift, placed});  // so that gradients are added
    expect_gradients_match_differences(network);
  }
  // Larger than the blocks of the table that are summed.
  Network large = positional_network(PositionKind::learned, {65, 64});
  Trial trial(large, 3);
  trial.train();
  const std::vector<float> outputs = trial.predict();
  std::vector<float> expected(65 * 64);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    expected[i % expected.size()] +=
        2 * (outputs[i] - trial.targets()[i]) / static_cast<float>(3 * expected.size());
  EXPECT_THAT(trial.gradient("positional_embedding/embeddings"),
              Pointwise(FloatNear(1e-7f), expected));
}

TEST(PositionalEmbeddingLayer, AddsTheFirstRowsOfALargerTable) {
  Network network({3, 5});
  network.add(PositionalEmbedding({.rows = 6}));
  network.add(PositionalEmbedding({.kind = PositionKind::constant, .rows = 2}), {0}, "constant");
  Trial trial(std::move(network), 4);
  const auto table = trial.parameter("positional_embedding/embeddings");
  const auto constant = trial.parameter("constant/embeddings");
  ASSERT_EQ(table.size(), 30U);
  ASSERT_EQ(constant.size(), 10U);
  std::vector<float> expected;
  for (std::size_t i = 0; i < trial.features().size(); ++i)
    expected.push_back(trial.features()[i] + table[i % 15] + constant[i % 5]);
  const std::vector<float> outputs = trial.predict();
  EXPECT_THAT(outputs, Pointwise(FloatNear(1e-6f), expected));

  trial.train();
  std::vector<float> table_gradient(30);
  std::vector<float> constant_gradient(10);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const float gradient =
        2 * (outputs[i] - trial.targets()[i]) / static_cast<float>(outputs.size());
    table_gradient[i % 15] += gradient;
    constant_gradient[i % 5] += gradient;
  }
  EXPECT_THAT(trial.gradient("positional_embedding/embeddings"),
              Pointwise(FloatNear(1e-6f), table_gradient))
      << "0 for rows without a position";
  EXPECT_THAT(trial.gradient("constant/embeddings"),
              Pointwise(FloatNear(1e-6f), constant_gradient));
}

TEST(PositionalEmbeddingLayer, MayBeFrozen) {
  Network network({3, 4});
  network.add(Shift());
  network.add(PositionalEmbedding());
  const std::vector<std::string> patterns = {"positional_embedding/*"};
  network.freeze(patterns);
  expect_gradients_match_differences(network);
}

TEST(PositionalEmbeddingLayer, RoundsToBfloat16) {
  if (const auto reason = why_no_bfloat16()) GTEST_SKIP() << *reason;
  for (const PositionKind kind : {PositionKind::learned, PositionKind::sinusoidal}) {
    Trial exact(positional_network(kind), 3);
    Trial rounded(positional_network(kind), 3, 1, Precision::bfloat16);
    EXPECT_THAT(rounded.predict(), Pointwise(FloatNear(0.03f), exact.predict()));
  }
}

TEST(PositionalEmbeddingLayer, DeclaresATableUnlessItIsFixed) {
  const Network learned = positional_network(PositionKind::learned);
  const ParameterInfo& table = *learned.parameters().find("positional_embedding/embeddings");
  EXPECT_EQ(table.shape, Shape({3, 5}));
  EXPECT_EQ(table.initializer.kind, Initializer::Kind::uniform);
  EXPECT_EQ(positional_network(PositionKind::sinusoidal).parameters().element_count(), 0U);
  EXPECT_EQ(input_error_of([] { positional_network(PositionKind::learned, {4}); }),
            "[layer positional_embedding (positional_embedding)] expected an input [positions, "
            "width], got [4]");
  EXPECT_EQ(input_error_of([] {
              Network({3, 5}).add(PositionalEmbedding({.rows = 2}));
            }),
            "[layer positional_embedding (positional_embedding)] expected at least 3 rows, one for "
            "each position, got 2");
}

}  // namespace
}  // namespace lockstep::inline v0::model
