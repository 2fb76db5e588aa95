#include "lockstep/model/graph.h"

#include <algorithm>
#include <utility>

namespace lockstep::model {
namespace {

std::vector<std::size_t> consumers_of(const Graph& graph, NodeId value) {
  std::vector<std::size_t> consumers;
  for (std::size_t i = 0; i < graph.steps.size(); ++i)
    consumers.insert(consumers.end(), static_cast<std::size_t>(std::ranges::count(graph.steps[i].inputs, value)), i);
  return consumers;
}

const Layer& layer_of(const Network& network, const GraphStep& step) {
  return *network.nodes()[static_cast<std::size_t>(step.node)].layer;
}

// relu(x) -> pool becomes pool(x) -> relu. The ReLU's step moves after the pooling; the readers of the pooling now read
// the ReLU.
void move_relu_behind_pooling(const Network& network, Graph& graph) {
  for (std::size_t i = 0; i < graph.steps.size(); ++i) {
    if (!layer_of(network, graph.steps[i]).is_relu() || graph.steps[i].inputs.front() == kInput) continue;
    const NodeId relu = graph.steps[i].node;
    const NodeId source = graph.steps[i].inputs.front();
    const auto readers = consumers_of(graph, relu);
    if (relu == graph.output || readers.size() != 1 || consumers_of(graph, source).size() != 1) continue;
    const std::size_t pool_step = readers.front();
    if (!layer_of(network, graph.steps[pool_step]).commutes_with_relu()) continue;

    const NodeId pool = graph.steps[pool_step].node;
    for (GraphStep& step : graph.steps) std::ranges::replace(step.inputs, pool, relu);
    if (graph.output == pool) graph.output = relu;
    graph.steps[pool_step].inputs.front() = source;
    graph.steps[i].inputs.front() = pool;
    graph.steps[i].input_shapes.front() = graph.steps[pool_step].output_shape;
    graph.steps[i].output_shape = graph.steps[pool_step].output_shape;
    std::rotate(graph.steps.begin() + static_cast<std::ptrdiff_t>(i),
                graph.steps.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                graph.steps.begin() + static_cast<std::ptrdiff_t>(pool_step) + 1);
  }
}

void fuse_relus(const Network& network, Graph& graph) {
  for (GraphStep& relu : graph.steps) {
    if (!layer_of(network, relu).is_relu()) continue;
    const NodeId source = relu.inputs.front();
    const auto producer = std::ranges::find(graph.steps, source, &GraphStep::node);
    if (producer == graph.steps.end() || !layer_of(network, *producer).can_fuse_relu()) continue;
    if (consumers_of(graph, source).size() != 1) continue;
    producer->fused_relu = true;
    relu.absorbed = true;
  }
}

// The addition's other input becomes the layer's second input.
void fuse_additions(const Network& network, Graph& graph) {
  for (std::size_t i = 1; i < graph.steps.size(); ++i) {
    GraphStep& addition = graph.steps[i];
    GraphStep& before = graph.steps[i - 1];
    if (!layer_of(network, addition).is_addition() || addition.inputs.size() != 2) continue;
    if (!layer_of(network, before).can_fuse_addition() || before.fused_relu) continue;
    if (consumers_of(graph, before.node).size() != 1) continue;
    const auto place = std::ranges::find(addition.inputs, before.node);
    if (place == addition.inputs.end()) continue;
    const auto other = static_cast<std::size_t>(1 - (place - addition.inputs.begin()));
    before.inputs.push_back(addition.inputs[other]);
    before.input_shapes.push_back(addition.input_shapes[other]);
    before.fused_add = true;
    before.fused_relu = addition.fused_relu;
    addition.inputs = {before.node};
    addition.input_shapes = {before.output_shape};
    addition.fused_relu = false;
    addition.absorbed = true;
  }
}

void fuse_statistics(const Network& network, Graph& graph) {
  for (const GraphStep& reader : graph.steps) {
    if (!layer_of(network, reader).can_take_statistics()) continue;
    const NodeId source = reader.inputs.front();
    const auto producer = std::ranges::find(graph.steps, source, &GraphStep::node);
    if (producer == graph.steps.end() || !layer_of(network, *producer).can_find_statistics()) continue;
    producer->fused_statistics = !producer->fused_relu && consumers_of(graph, source).size() == 1;
  }
}

// Removes layers that the output does not depend on.
void drop_unused(Graph& graph) {
  for (std::size_t i = graph.steps.size(); i-- > 0;)
    if (graph.steps[i].node != graph.output && consumers_of(graph, graph.steps[i].node).empty())
      graph.steps.erase(graph.steps.begin() + static_cast<std::ptrdiff_t>(i));
}

}  // namespace

Graph make_graph(const Network& network, const Fusions& fusions) {
  Graph graph{.steps = {}, .output = network.last()};
  for (std::size_t i = 0; i < network.nodes().size(); ++i) {
    const Node& node = network.nodes()[i];
    GraphStep step{
        .node = static_cast<NodeId>(i), .inputs = node.inputs, .input_shapes = {}, .output_shape = node.output_shape};
    for (const NodeId input : node.inputs) step.input_shapes.push_back(network.shape(input));
    graph.steps.push_back(std::move(step));
  }
  drop_unused(graph);
  move_relu_behind_pooling(network, graph);
  fuse_relus(network, graph);
  if (fusions.additions) fuse_additions(network, graph);
  if (fusions.statistics) fuse_statistics(network, graph);
  return graph;
}

}  // namespace lockstep::model
