#include "lockstep/onnx/export/quantized_network.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/onnx/export/int8_layers.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Network;
using model::NodeId;

using Types = std::span<const std::string_view>;
constexpr std::array<std::string_view, 3> kConvolutions{"conv2d", "conv1d", "depthwise_conv2d"};
constexpr std::array<std::string_view, 2> kReLUs{"relu", "relu6"};
/// Layers that compute integers from integers.
constexpr std::array<std::string_view, 4> kRoundedAfter{"add", "concatenate", "max_pool2d",
                                                        "dropout"};
/// Layers whose values are a subset of those of their input.
constexpr std::array<std::string_view, 4> kKeepingValues{"max_pool2d", "dropout", "flatten",
                                                         "reshape"};

bool contains(Types types, std::string_view type) {
  return std::ranges::find(types, type) != types.end();
}

std::string_view type_of(const model::Node& node) { return model::type_of(*node.layer); }

std::vector<bool> needed_nodes(const Network& network) {
  const auto nodes = network.nodes();
  std::vector<bool> needed(nodes.size());
  for (const model::NetworkOutput& output : network.outputs())
    needed[static_cast<std::size_t>(output.node)] = true;
  for (std::size_t i = nodes.size(); i-- > 0;)
    for (const NodeId input : nodes[i].inputs)
      if (needed[i] && !model::is_input(input)) needed[static_cast<std::size_t>(input)] = true;
  return needed;
}

bool is_output(const Network& network, NodeId node) {
  return std::ranges::find(network.outputs(), node, &model::NetworkOutput::node) !=
         network.outputs().end();
}

/// The ReLU that is the only reader of `node`; `node` if there is none.
NodeId after_relu(const Network& network, NodeId node) {
  if (is_output(network, node)) return node;
  NodeId reader = node;
  for (NodeId i = node + 1; i <= network.last(); ++i) {
    const model::Node& other = network.nodes()[static_cast<std::size_t>(i)];
    if (std::ranges::find(other.inputs, node) == other.inputs.end()) continue;
    if (reader != node || !contains(kReLUs, type_of(other))) return node;
    reader = i;
  }
  return reader;
}

bool is_taken(const Network& network, const std::string& name) {
  return std::ranges::find(network.nodes(), name, &model::Node::name) != network.nodes().end();
}

}  // namespace

std::vector<NodeId> layers_for_int8(const Network& network) {
  const std::vector<bool> needed = needed_nodes(network);
  std::vector<NodeId> found;
  for (NodeId i = 0; i <= network.last(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::string_view type = type_of(network.nodes()[at]);
    if (needed[at] && (type == "dense" || contains(kConvolutions, type))) found.push_back(i);
  }
  return found;
}

RoundingPlan::RoundingPlan(const Network& network, const std::set<NodeId>& int8)
    : network_(network), int8_(int8), inputs_(network.inputs().size()) {
  readers_.resize(inputs_ + network.nodes().size(), Readers::none);
  const auto first = -static_cast<NodeId>(inputs_);
  for (NodeId value = first; value <= network.last(); ++value) sources_.push_back(value);
  for (NodeId i = 0; i <= network.last(); ++i) {
    const model::Node& node = network.nodes()[static_cast<std::size_t>(i)];
    const std::string_view type = type_of(node);
    const auto is_rounded = [&](NodeId input) { return is_for_all(input); };
    const bool reads_only_rounded = std::ranges::all_of(node.inputs, is_rounded);
    if (reads_only_rounded && contains(kKeepingValues, type))
      sources_[index(i)] = range_of(node.inputs.front());
    const bool is_int8 = int8_.contains(i);
    Readers& read = readers_[index(node.inputs.front())];
    if (is_int8 && read == Readers::none) read = Readers::int8;
    if ((is_int8 && contains(kConvolutions, type)) ||
        (reads_only_rounded && contains(kRoundedAfter, type))) {
      const NodeId value = after_relu(network, i);
      if (!is_output(network, value)) readers_[index(value)] = Readers::all;
    }
  }
}

std::vector<NodeId> RoundingPlan::rounded() const {
  std::vector<NodeId> values;
  const auto first = -static_cast<NodeId>(inputs_);
  for (NodeId value = first; value <= network_.last(); ++value)
    if (readers_[index(value)] != Readers::none) values.push_back(value);
  return values;
}

NodeId RoundingPlan::range_of(NodeId value) const { return sources_[index(value)]; }

bool RoundingPlan::reads_rounded(NodeId reader, std::size_t input) const {
  const NodeId value = network_.nodes()[static_cast<std::size_t>(reader)].inputs[input];
  const Readers readers = readers_[index(value)];
  return readers == Readers::all ||
         (readers == Readers::int8 && input == 0 && int8_.contains(reader));
}

model::FoldedNetwork quantized_network(const model::FoldedNetwork& original,
                                       const std::set<NodeId>& int8,
                                       const std::map<NodeId, ActivationRange>& ranges,
                                       int weight_bits) {
  const Network& from = original.network;
  const RoundingPlan plan(from, int8);
  Network network(from.inputs(), from.name());
  std::map<NodeId, NodeId> copies;   // by node of `from`
  std::map<NodeId, NodeId> rounded;  // by node of `from`
  const auto values = plan.rounded();
  const auto round = [&](NodeId value, const std::string& name) {
    if (!std::ranges::binary_search(values, value)) return;
    const auto range = ranges.find(plan.range_of(value));
    LOCKSTEP_CHECK(range != ranges.end());
    std::string own_name = name + "_uint8";
    while (is_taken(from, own_name) || is_taken(network, own_name)) own_name += "_";
    rounded[value] = network.add(model::FakeQuantize(rounding_to_uint8(range->second)),
                                 {copies.at(value)}, own_name);
  };
  for (std::size_t k = 0; k < from.inputs().size(); ++k) {
    const NodeId value = model::kInput - static_cast<NodeId>(k);
    copies[value] = value;
    round(value, from.inputs()[k].name);
  }
  for (NodeId i = 0; i <= from.last(); ++i) {
    const model::Node& node = from.nodes()[static_cast<std::size_t>(i)];
    std::vector<NodeId> inputs;
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      inputs.push_back((plan.reads_rounded(i, k) ? rounded : copies).at(node.inputs[k]));
    copies[i] = network.add_node(node.layer, std::move(inputs), node.name);
    // The exporter omits dropouts, so their values are rounded already.
    if (type_of(node) == "dropout" && plan.reads_rounded(i, 0))
      rounded[i] = copies[i];
    else
      round(i, node.name);
  }
  for (const model::NetworkOutput& output : from.outputs())
    network.output(output.name, copies.at(output.node));

  model::FoldedNetwork result{.network = std::move(network),
                              .parameters = {},
                              .buffers = std::vector<float>(original.buffers.size())};
  const auto copy = [](const model::ParameterTable& source, std::span<const float> source_values,
                       const model::ParameterTable& target, std::vector<float>& target_values) {
    target_values.assign(target.flat_size(), 0.0f);
    for (const model::ParameterInfo& entry : target.entries()) {
      const model::ParameterInfo* const found = source.find(entry.name);
      LOCKSTEP_CHECK(found != nullptr);
      std::ranges::copy(model::ParameterTable::slice(source_values, *found),
                        model::ParameterTable::slice(std::span(target_values), entry).begin());
    }
  };
  copy(from.parameters(), original.parameters, result.network.parameters(), result.parameters);
  copy(from.buffers(), original.buffers, result.network.buffers(), result.buffers);
  for (const NodeId layer : int8)
    round_int8_layer(result.network, copies.at(layer), result.parameters, weight_bits);
  return result;
}

}  // namespace lockstep::inline v0::onnx
