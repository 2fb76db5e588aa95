#include "lockstep/train/tensorboard/network_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <protozero/pbf_builder.hpp>
#include <string_view>
#include <vector>

#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::train {
namespace {

// Field numbers of TensorFlow's graph.proto, node_def.proto, attr_value.proto, tensor_shape.proto
// and versions.proto.
using GraphTag = protozero::pbf_tag_type;
enum class GraphDef : GraphTag { node = 1, versions = 4 };
enum class Versions : GraphTag { producer = 1 };
enum class NodeDef : GraphTag { name = 1, op = 2, input = 3, attributes = 5 };
enum class Entry : GraphTag { key = 1, value = 2 };
enum class Attribute : GraphTag { list = 1, text = 2, integer = 3, boolean = 5, type = 6 };
enum class AttributeList : GraphTag { shape = 7 };
enum class GraphShape : GraphTag { dim = 2 };
enum class GraphExtent : GraphTag { size = 1 };

constexpr std::int64_t kProducer = 22;  // as in TensorBoard's own graphs
constexpr std::int32_t kFloat = 1;      // DT_FLOAT
constexpr std::int32_t kInteger = 3;    // DT_INT32

using NodeBuilder = protozero::pbf_builder<NodeDef>;

template <typename Fill>
void add_attribute(NodeBuilder& node, std::string_view key, Fill fill) {
  protozero::pbf_builder<Entry> entry(node, NodeDef::attributes);
  entry.add_string(Entry::key, key.data(), key.size());
  protozero::pbf_builder<Attribute> value(entry, Entry::value);
  fill(value);
}

void add_text(NodeBuilder& node, std::string_view key, const std::string& text) {
  add_attribute(node, key,
                [&](auto& value) { value.add_bytes(Attribute::text, encode_bytes(text)); });
}

/// Adds the shape of a batch, which TensorBoard shows on the edges.
void add_output_shape(NodeBuilder& node, const model::Shape& shape) {
  add_attribute(node, "_output_shapes", [&](auto& value) {
    protozero::pbf_builder<AttributeList> list(value, Attribute::list);
    protozero::pbf_builder<GraphShape> extents(list, AttributeList::shape);
    const auto add = [&](std::int64_t extent) {
      protozero::pbf_builder<GraphExtent>(extents, GraphShape::dim)
          .add_int64(GraphExtent::size, extent);
    };
    add(-1);
    for (const std::int64_t extent : shape) add(extent);
  });
}

/// Adds the operation and the options of the layer. A user-defined layer has only its kind.
void add_operation(NodeBuilder& node, const model::Layer& layer) {
  const model::LayerType* const type = model::find_type(layer);
  node.add_string(NodeDef::op,
                  encode_bytes(type == nullptr ? layer.kind() : std::string(type->name)));
  if (type == nullptr) return;
  nlohmann::json options = nlohmann::json::object();
  type->write(layer, options);
  for (const auto& [key, value] : options.items())
    add_text(node, key, value.is_string() ? value.template get<std::string>() : dump_json(value));
}

void add_parameters(NodeBuilder& node, const model::Network& network, const model::Node& layer) {
  if (layer.parameters.empty()) return;
  std::int64_t count = 0;
  for (const std::size_t index : layer.parameters) {
    const model::ParameterInfo& entry = network.parameters().entries()[index];
    count += static_cast<std::int64_t>(entry.count);
    const std::string& name = entry.name;
    add_text(node, "shape of " + name.substr(name.rfind('/') + 1),
             fmt::format("[{}]", fmt::join(entry.shape, ", ")));
  }
  add_attribute(node, "parameters",
                [&](auto& value) { value.add_int64(Attribute::integer, count); });
  add_attribute(node, "trained", [&](auto& value) {
    value.add_bool(Attribute::boolean, !network.is_frozen(layer));
  });
}

/// Returns a unique name: a layer may have the name of an input.
std::string name_of_input(const model::Network& network, const model::NetworkInput& input) {
  std::string name = input.name;
  while (std::ranges::find(network.nodes(), name, &model::Node::name) != network.nodes().end())
    name += "_input";
  return name;
}

}  // namespace

std::string network_graph(const model::Network& network) {
  std::string bytes;
  protozero::pbf_builder<GraphDef> graph(bytes);
  std::vector<std::string> inputs;
  for (const model::NetworkInput& input : network.inputs()) {
    NodeBuilder node(graph, GraphDef::node);
    node.add_string(NodeDef::name,
                    inputs.emplace_back(encode_bytes(name_of_input(network, input))));
    node.add_string(NodeDef::op, "Placeholder");
    add_attribute(node, "dtype", [&](auto& value) {
      value.add_enum(Attribute::type, input.type == ElementType::int32 ? kInteger : kFloat);
    });
    add_output_shape(node, input.shape);
  }
  for (const model::Node& layer : network.nodes()) {
    NodeBuilder node(graph, GraphDef::node);
    node.add_string(NodeDef::name, encode_bytes(layer.name));
    for (const model::NodeId input : layer.inputs)
      node.add_string(NodeDef::input, model::is_input(input)
                                          ? inputs[model::input_index(input)]
                                          : encode_bytes(network.nodes()[input].name));
    add_output_shape(node, layer.output_shape);
    add_operation(node, *layer.layer);
    add_parameters(node, network, layer);
    for (const model::NetworkOutput& output : network.outputs())
      if (network.has_named_outputs() && &network.nodes()[output.node] == &layer)
        add_text(node, "output", output.name);
  }
  protozero::pbf_builder<Versions>(graph, GraphDef::versions)
      .add_int32(Versions::producer, kProducer);
  return bytes;
}

}  // namespace lockstep::inline v0::train
