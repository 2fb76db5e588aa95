#include "lockstep/model/network/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<NodeId> order(const Graph& graph) {
  std::vector<NodeId> nodes;
  for (const GraphStep& step : graph.steps) nodes.push_back(step.node);
  return nodes;
}

// Nodes whose operation also applies the following ReLU.
std::vector<NodeId> fused(const Graph& graph) {
  std::vector<NodeId> nodes;
  for (const GraphStep& step : graph.steps)
    if (step.fused_relu) nodes.push_back(step.node);
  return nodes;
}

TEST(Graph, FusesAReLUIntoTheLayerBeforeIt) {
  Network network({8});
  const NodeId dense = network.add(Dense({.units = 4}));
  const NodeId relu = network.add(ReLU());
  const Graph graph = make_graph(network);
  EXPECT_THAT(fused(graph), ElementsAre(dense));
  EXPECT_TRUE(graph.steps[1].absorbed);
  EXPECT_THAT(graph.outputs, ElementsAre(relu));
}

TEST(Graph, KeepsAReLUWhoseInputHasOtherReaders) {
  Network network({8});
  const NodeId dense = network.add(Dense({.units = 8}));
  const NodeId relu = network.add(ReLU());
  network.add(Add(), {relu, dense});
  EXPECT_THAT(fused(make_graph(network)), IsEmpty());
}

TEST(Graph, MovesAReLUAfterMaxPooling) {
  Network network({8, 8, 1});
  const NodeId conv = network.add(Conv2D({.filters = 2}));
  const NodeId relu = network.add(ReLU());
  const NodeId pool = network.add(MaxPool2D());
  const NodeId flat = network.add(Flatten());
  const Graph graph = make_graph(network);
  EXPECT_THAT(order(graph), ElementsAre(conv, pool, relu, flat));
  EXPECT_THAT(graph.steps[1].inputs, ElementsAre(conv));
  EXPECT_THAT(graph.steps[2].inputs, ElementsAre(pool));
  EXPECT_EQ(graph.steps[2].output_shape, Shape({3, 3, 2}));
  EXPECT_THAT(graph.steps[3].inputs, ElementsAre(relu));
  EXPECT_THAT(fused(graph), IsEmpty()) << "pooling does not apply one";
}

TEST(Graph, KeepsAReLUWithOtherReadersBeforeMaxPooling) {
  Network network({8, 8, 2});
  const NodeId conv = network.add(Conv2D({.filters = 2, .padding = Padding::same}));
  const NodeId relu = network.add(ReLU());
  const NodeId pool = network.add(MaxPool2D({.pool = 3, .strides = 1, .padding = Padding::same}));
  network.add(Add(), {pool, relu});
  EXPECT_THAT(order(make_graph(network)), ElementsAre(conv, relu, pool, 3));
  EXPECT_THAT(fused(make_graph(network)), ElementsAre(conv));
}

TEST(Graph, KeepsAReLUBeforeAveragePooling) {
  Network network({8, 8, 2});
  network.add(BatchNormalization());
  network.add(ReLU());
  network.add(AveragePool2D());
  const Graph graph = make_graph(network);
  EXPECT_THAT(order(graph), ElementsAre(0, 1, 2));
  EXPECT_THAT(fused(graph), ElementsAre(0));
}

TEST(Graph, DropsLayersThatTheOutputDoesNotNeed) {
  Network network({8});
  const NodeId used = network.add(Dense({.units = 4}));
  const NodeId unused = network.add(Dense({.units = 4}), {kInput});
  network.add(ReLU(), {unused});
  const NodeId output = network.add(Dense({.units = 2}), {used});
  EXPECT_THAT(order(make_graph(network)), ElementsAre(used, output));
}

// input -> convolution -> normalization -> (+ input of the block) -> ReLU, as in a residual block.
Network residual_network() {
  Network network({4, 4, 2});
  const NodeId block = network.add(Conv2D({.filters = 2, .kernel = 1}), {kInput}, "first");
  network.add(Conv2D({.filters = 2, .kernel = 1}), {block}, "second");
  const NodeId normalized = network.add(BatchNormalization(), {network.last()}, "normalized");
  network.add(Add(), {normalized, block}, "sum");
  network.add(ReLU(), {network.last()}, "end");
  return network;
}

TEST(FusedAddition, IsFusedIntoTheNormalizationBeforeIt) {
  const Network network = residual_network();
  const Graph graph = make_graph(network);
  ASSERT_EQ(graph.steps.size(), 5U);
  const GraphStep& normalized = graph.steps[2];
  EXPECT_TRUE(normalized.fused_add);
  EXPECT_TRUE(normalized.fused_relu) << "the ReLU follows the sum";
  EXPECT_EQ(normalized.inputs, (std::vector<NodeId>{1, 0}));
  EXPECT_EQ(normalized.input_shapes, (std::vector<Shape>{{4, 4, 2}, {4, 4, 2}}));
  for (const std::size_t absorbed : {3U, 4U})
    EXPECT_TRUE(graph.steps[absorbed].absorbed) << absorbed;
  EXPECT_EQ(graph.steps[3].inputs, (std::vector<NodeId>{2}));
}

TEST(FusedAddition, IsNotFusedWithOtherReadersOrThreeInputs) {
  Network read_twice({4});
  const NodeId first = read_twice.add(Dense({.units = 4}));
  const NodeId normalized = read_twice.add(BatchNormalization());
  const NodeId sum = read_twice.add(Add(), {normalized, first});
  read_twice.add(Add(), {sum, normalized});
  EXPECT_FALSE(make_graph(read_twice).steps[1].fused_add);

  Network three_inputs({4});
  const NodeId one = three_inputs.add(Dense({.units = 4}));
  const NodeId two = three_inputs.add(Dense({.units = 4}), {kInput});
  three_inputs.add(BatchNormalization(), {one});
  three_inputs.add(Add(), {three_inputs.last(), one, two});
  EXPECT_FALSE(make_graph(three_inputs).steps[2].fused_add);
}

// Nodes that may compute the statistics of their output.
std::vector<NodeId> with_statistics(const Network& network) {
  std::vector<NodeId> nodes;
  for (const GraphStep& step : make_graph(network, true).steps)
    if (step.fused_statistics) nodes.push_back(step.node);
  return nodes;
}

TEST(FusedStatistics, RequireANormalizationAsTheOnlyReader) {
  Network network({8, 8, 2});
  const NodeId first = network.add(Conv2D({.filters = 2, .use_bias = false}));
  network.add(BatchNormalization());
  network.add(ReLU());
  const NodeId second = network.add(Conv2D({.filters = 2, .use_bias = false}));
  network.add(BatchNormalization());
  EXPECT_THAT(with_statistics(network), ElementsAre(first, second));
  for (const GraphStep& step : make_graph(network).steps) EXPECT_FALSE(step.fused_statistics);
}

TEST(FusedStatistics, AreNotUsedIfTheOutputChangesAfterTheSums) {
  Network with_bias({8, 8, 2});
  with_bias.add(Conv2D({.filters = 2}));
  with_bias.add(BatchNormalization());
  EXPECT_THAT(with_statistics(with_bias), IsEmpty());

  Network with_relu({8, 8, 2});
  with_relu.add(Conv2D({.filters = 2, .use_bias = false}));
  with_relu.add(ReLU());
  with_relu.add(BatchNormalization());
  EXPECT_THAT(with_statistics(with_relu), IsEmpty());
}

TEST(FusedStatistics, AreNotUsedForAFrozenNormalization) {
  Network network({8, 8, 2});
  network.add(Conv2D({.filters = 2, .use_bias = false}));
  network.add(BatchNormalization());
  const NodeId second = network.add(Conv2D({.filters = 2, .use_bias = false}));
  network.add(BatchNormalization());
  const std::vector<std::string> frozen = {"batch_normalization/*", "batch_normalization_1/gamma"};
  network.freeze(frozen);
  EXPECT_THAT(with_statistics(network), ElementsAre(second)) << "beta is trained";
}

TEST(FusedStatistics, AreNotUsedForOtherLayersOrTheInput) {
  Network network({4});
  network.add(BatchNormalization());
  network.add(Dense({.units = 4, .use_bias = false}));
  network.add(BatchNormalization());
  EXPECT_THAT(with_statistics(network), IsEmpty());
}

TEST(FusedStatistics, AreNotUsedIfTheConvolutionHasTwoReaders) {
  Network network({4, 4, 2});
  const NodeId read_twice = network.add(Conv2D({.filters = 2, .kernel = 1, .use_bias = false}));
  const NodeId normalized = network.add(BatchNormalization());
  network.add(Add(), {normalized, read_twice});
  EXPECT_THAT(with_statistics(network), IsEmpty()) << "the normalization reads it twice";

  Network normalized_twice({4, 4, 2});
  const NodeId source =
      normalized_twice.add(Conv2D({.filters = 2, .kernel = 1, .use_bias = false}));
  const NodeId first = normalized_twice.add(BatchNormalization(), {source});
  const NodeId second = normalized_twice.add(BatchNormalization(), {source});
  normalized_twice.add(Add(), {first, second});
  EXPECT_THAT(with_statistics(normalized_twice), IsEmpty());
}

// The graph of `network` with a further output besides its last layer.
Graph with_output(Network network, NodeId node) {
  network.output("end", network.last());
  network.output("inner", node);
  return make_graph(network, true);
}

TEST(Graph, DoesNotRewriteOutputs) {
  Network dense({8});
  dense.add(Dense({.units = 4}));
  dense.add(ReLU());
  const Graph graph = with_output(dense, 0);
  EXPECT_THAT(fused(graph), IsEmpty());
  EXPECT_THAT(graph.outputs, ElementsAre(1, 0));

  Network pooled({8, 8, 1});
  pooled.add(Conv2D({.filters = 2}));
  pooled.add(ReLU());
  pooled.add(MaxPool2D());
  for (const NodeId node : {0, 1})
    EXPECT_THAT(order(with_output(pooled, node)), ElementsAre(0, 1, 2));

  const NodeId normalized = 2;
  EXPECT_FALSE(with_output(residual_network(), normalized).steps[2].fused_add);
  EXPECT_TRUE(with_output(residual_network(), 0).steps[2].fused_add);

  Network convolution({8, 8, 2});
  convolution.add(Conv2D({.filters = 2, .use_bias = false}));
  convolution.add(BatchNormalization());
  EXPECT_FALSE(with_output(convolution, 0).steps[0].fused_statistics);
}

TEST(Graph, KeepsTheLayersOfAllOutputs) {
  Network network({8});
  const NodeId first = network.add(Dense({.units = 4}));
  network.add(Dense({.units = 4}), {kInput});
  network.add(Dense({.units = 2}), {kInput});
  EXPECT_THAT(order(with_output(network, first)), ElementsAre(0, 2));
}

}  // namespace
}  // namespace lockstep::inline v0::model
