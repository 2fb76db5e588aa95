#include "lockstep/model/network/graph.h"

#include <algorithm>
#include <utility>

namespace lockstep::inline v0::model {
namespace {

std::vector<std::size_t> consumers_of(const Graph& graph, NodeId value) {
  std::vector<std::size_t> consumers;
  for (std::size_t i = 0; i < graph.steps.size(); ++i)
    consumers.insert(consumers.end(),
                     static_cast<std::size_t>(std::ranges::count(graph.steps[i].inputs, value)), i);
  return consumers;
}

// Whether exactly one layer reads `value`.
bool has_one_reader(const Graph& graph, NodeId value) {
  return consumers_of(graph, value).size() == 1 && !graph.is_output(value);
}

Traits traits_of(const Network& network, const GraphStep& step) {
  return network.nodes()[step.node].layer->traits();
}

// relu(x) -> pool becomes pool(x) -> relu. The ReLU's step moves after the pooling; the readers of
// the pooling now read the ReLU.
void move_relu_behind_pooling(const Network& network, Graph& graph) {
  for (std::size_t i = 0; i < graph.steps.size(); ++i) {
    if (traits_of(network, graph.steps[i]).function != Traits::Function::relu ||
        is_input(graph.steps[i].inputs.front()))
      continue;
    const NodeId relu = graph.steps[i].node;
    const NodeId source = graph.steps[i].inputs.front();
    if (!has_one_reader(graph, relu) || !has_one_reader(graph, source)) continue;
    const std::size_t pool_step = consumers_of(graph, relu).front();
    if (!traits_of(network, graph.steps[pool_step]).commutes_with_relu) continue;

    const NodeId pool = graph.steps[pool_step].node;
    for (GraphStep& step : graph.steps) std::ranges::replace(step.inputs, pool, relu);
    std::ranges::replace(graph.outputs, pool, relu);
    graph.steps[pool_step].inputs.front() = source;
    graph.steps[i].inputs.front() = pool;
    graph.steps[i].input_shapes.front() = graph.steps[pool_step].output_shape;
    graph.steps[i].output_shape = graph.steps[pool_step].output_shape;
    std::rotate(graph.steps.begin() + static_cast<std::ptrdiff_t>(i),
                graph.steps.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                graph.steps.begin() + static_cast<std::ptrdiff_t>(pool_step) + 1);
  }
}

// The step that writes `value`: its layer, or the layer that absorbed it. Null for an input of the
// network.
GraphStep* writer_of(Graph& graph, NodeId value) {
  const auto step = std::ranges::find(graph.steps, value, &GraphStep::node);
  if (step == graph.steps.end()) return nullptr;
  return step->absorbed ? writer_of(graph, step->inputs.front()) : &*step;
}

// Fuses `relu` into the layer before it.
void fuse_relu(const Network& network, Graph& graph, GraphStep& relu) {
  GraphStep* const writer = writer_of(graph, relu.inputs.front());
  if (writer == nullptr || writer->fused_relu || !traits_of(network, *writer).absorbs_relu) return;
  if (!has_one_reader(graph, relu.inputs.front())) return;
  writer->fused_relu = true;
  relu.absorbed = true;
}

// Fuses the addition into the layer directly before it. Its other input, which must be computed
// before that layer, becomes the layer's second input.
void fuse_addition(const Network& network, Graph& graph, GraphStep& before, GraphStep& addition) {
  if (addition.inputs.size() != 2 || !traits_of(network, before).absorbs_addition) return;
  if (!has_one_reader(graph, before.node)) return;
  const auto place = std::ranges::find(addition.inputs, before.node);
  if (place == addition.inputs.end()) return;
  const auto other = static_cast<std::size_t>(1 - (place - addition.inputs.begin()));
  before.inputs.push_back(addition.inputs[other]);
  before.input_shapes.push_back(addition.input_shapes[other]);
  before.fused_add = true;
  addition.inputs = {before.node};
  addition.input_shapes = {before.output_shape};
  addition.absorbed = true;
}

// Makes the layer that writes the input of `reader` also compute its statistics, if `reader` is the
// only reader. A frozen normalization uses none.
void fuse_statistics(const Network& network, Graph& graph, const GraphStep& reader) {
  if (network.is_frozen(network.nodes()[reader.node])) return;
  GraphStep* const writer = writer_of(graph, reader.inputs.front());
  if (writer == nullptr || traits_of(network, *writer).statistics != Traits::Statistics::computes)
    return;
  writer->fused_statistics = !writer->fused_relu && has_one_reader(graph, reader.inputs.front());
}

// Visits each step after those whose outputs it reads.
void fuse(const Network& network, bool statistics, Graph& graph) {
  for (std::size_t i = 0; i < graph.steps.size(); ++i) {
    GraphStep& step = graph.steps[i];
    const Traits traits = traits_of(network, step);
    if (traits.function == Traits::Function::relu) fuse_relu(network, graph, step);
    if (traits.function == Traits::Function::addition && i > 0)
      fuse_addition(network, graph, graph.steps[i - 1], step);
    if (traits.statistics == Traits::Statistics::uses && statistics)
      fuse_statistics(network, graph, step);
  }
}

// Removes layers that no output depends on.
void drop_unused(Graph& graph) {
  for (std::size_t i = graph.steps.size(); i-- > 0;)
    if (!graph.is_output(graph.steps[i].node) && consumers_of(graph, graph.steps[i].node).empty())
      graph.steps.erase(graph.steps.begin() + static_cast<std::ptrdiff_t>(i));
}

}  // namespace

Graph make_graph(const Network& network, bool statistics) {
  Graph graph;
  for (const NetworkOutput& output : network.outputs()) graph.outputs.push_back(output.node);
  for (std::size_t i = 0; i < network.nodes().size(); ++i) {
    const Node& node = network.nodes()[i];
    GraphStep step{.node = static_cast<NodeId>(i),
                   .inputs = node.inputs,
                   .input_shapes = {},
                   .output_shape = node.output_shape};
    for (const NodeId input : node.inputs) step.input_shapes.push_back(network.shape(input));
    graph.steps.push_back(std::move(step));
  }
  drop_unused(graph);
  move_relu_behind_pooling(network, graph);
  fuse(network, statistics, graph);
  return graph;
}

}  // namespace lockstep::inline v0::model
