#include "model/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/layers/layers.h"

namespace lockstep::model {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<NodeId> order(const Graph& graph) {
  std::vector<NodeId> nodes;
  for (const GraphStep& step : graph.steps) nodes.push_back(step.node);
  return nodes;
}

// Nodes whose operation also applies the ReLU behind it.
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
  EXPECT_EQ(graph.output, relu);
}

TEST(Graph, LeavesAReLUWhoseInputHasOtherReaders) {
  Network network({8});
  const NodeId dense = network.add(Dense({.units = 8}));
  const NodeId relu = network.add(ReLU());
  network.add(Add(), {relu, dense});
  EXPECT_THAT(fused(make_graph(network)), IsEmpty());
}

TEST(Graph, MovesAReLUBehindMaxPooling) {
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

TEST(Graph, LeavesAReLUThatOthersReadBeforeMaxPooling) {
  Network network({8, 8, 2});
  const NodeId conv = network.add(Conv2D({.filters = 2, .padding = Padding::same}));
  const NodeId relu = network.add(ReLU());
  const NodeId pool = network.add(MaxPool2D({.pool = 3, .strides = 1, .padding = Padding::same}));
  network.add(Add(), {pool, relu});
  EXPECT_THAT(order(make_graph(network)), ElementsAre(conv, relu, pool, 3));
  EXPECT_THAT(fused(make_graph(network)), ElementsAre(conv));
}

TEST(Graph, LeavesAReLUBeforeAnAverage) {
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

}  // namespace
}  // namespace lockstep::model
