#include "lockstep/model/network/network_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/model/layer/json_object.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::model {
namespace {

using nlohmann::json;
using LayerPointer = std::shared_ptr<const Layer>;

constexpr const char* kInputName = "input";  // name of a single input in "inputs"

// Whether `network` was constructed with a single input, which a description calls "input".
bool has_plain_input(const Network& network) {
  const NetworkInput& first = network.inputs().front();
  return network.inputs().size() == 1 && first.name == "features" &&
         first.type == ElementType::float32;
}

LayerPointer read_layer(JsonObject& object, const DataShape& data) {
  const std::string type = object.text("type");
  const auto* const found = std::ranges::find(kLayerTypes, type, &LayerType::name);
  if (found != kLayerTypes.end()) return found->read(object, data);
  std::vector<std::string_view> known;
  for (const LayerType& layer : kLayerTypes) known.push_back(layer.name);
  object.refuse("expected \"type\" to be one of " + list_names(known), got_name(type, known));
}

LayerPointer read_activation(JsonObject& object, const DataShape& data) {
  const std::string name = object.text("activation", "none");
  if (name == "none") return nullptr;
  std::vector<std::string_view> known = {"none"};
  for (const LayerType& layer : kLayerTypes) {
    if (!layer.is_activation) continue;
    if (layer.name == name) return layer.read(object, data);
    known.push_back(layer.name);
  }
  object.refuse("expected \"activation\" to be one of " + list_names(known), got_name(name, known));
}

// Adds the described layers in order and looks them up by name.
class NetworkReader {
 public:
  NetworkReader(Network& network, std::string_view source, const DataShape& data,
                bool has_named_inputs)
      : network_(network), source_(source), data_(data) {
    if (!has_named_inputs) nodes_[kInputName] = kInput;
    for (const NetworkInput& input : network.inputs())
      if (has_named_inputs) nodes_[input.name] = network.input(input.name);
  }

  void add(const json& description, std::size_t index) {
    JsonObject object(description,
                      fmt::format("{}: layer {}{}", source_, index, label(description)));
    const LayerPointer layer = read_layer(object, data_);
    const LayerPointer activation = read_activation(object, data_);
    const std::string name = object.text("name", "");
    const std::vector<NodeId> inputs = read_inputs(object);
    object.finish();

    NodeId end = place(object, layer, inputs, name);
    const std::string placed = network_.nodes().back().name;
    if (const auto taken = nodes_.find(placed); taken != nodes_.end() && is_input(taken->second))
      object.refuse("expected a different layer name",
                    fmt::format("\"{}\" is reserved for the input of the network", placed));
    if (activation) end = place(object, activation, {end}, "");
    nodes_[placed] = end;
  }

  // "outputs": names of layers, or pairs of a name and a layer. In a list the pairs are objects,
  // and the outputs have its order; an object of pairs has the order of the names.
  void add_outputs(JsonObject& object) {
    const json& outputs = object.required("outputs");
    const auto refuse = [&](const json& got) {
      object.refuse("expected \"outputs\" to be a list of layers, or an object of names and layers",
                    fmt::format("got {}", describe_json(got)));
    };
    const auto add_pairs = [&](const json& pairs) {
      if (!pairs.is_object() || pairs.empty()) refuse(pairs);
      for (const auto& [name, layer] : pairs.items()) {
        if (!layer.is_string()) refuse(layer);
        add_output(object, name, layer);
      }
    };
    if (!outputs.is_array() || outputs.empty()) return add_pairs(outputs);
    for (const json& one : outputs) one.is_string() ? add_output(object, one, one) : add_pairs(one);
  }

 private:
  void add_output(const JsonObject& object, const std::string& name, const std::string& layer) {
    const NodeId end = node(object, "outputs", layer);
    try {
      network_.output(name, end);
    } catch (const Error& error) {
      object.refuse("expected valid outputs", error.what());
    }
  }

  // ` (conv2d "stem")`, or the part of it that the description contains; used to identify the layer
  // in messages.
  static std::string label(const json& description) {
    if (!description.is_object()) return "";
    std::string text;
    if (const auto type = description.find("type"); type != description.end() && type->is_string())
      text = type->get<std::string>();
    if (const auto name = description.find("name"); name != description.end() && name->is_string())
      text += fmt::format("{}\"{}\"", text.empty() ? "" : " ", name->get<std::string>());
    return text.empty() ? "" : fmt::format(" ({})", text);
  }

  std::vector<NodeId> read_inputs(JsonObject& object) const {
    if (!object.has("inputs")) return {network_.last()};
    std::vector<NodeId> inputs;
    for (const std::string& name : object.texts("inputs"))
      inputs.push_back(node(object, "inputs", name));
    if (inputs.empty()) object.refuse("expected at least one name in \"inputs\"", "got none");
    return inputs;
  }

  NodeId node(const JsonObject& object, std::string_view key, const std::string& name) const {
    if (const auto found = nodes_.find(name); found != nodes_.end()) return found->second;
    std::vector<std::string_view> known;
    for (const auto& entry : nodes_) known.push_back(entry.first);
    object.refuse(fmt::format("expected \"{}\" to name earlier layers", key),
                  got_name(name, known));
  }

  NodeId place(const JsonObject& object, const LayerPointer& layer, std::vector<NodeId> inputs,
               std::string name) {
    try {
      return network_.add_node(layer, std::move(inputs), std::move(name));
    } catch (const Error& error) {
      object.refuse("expected a valid layer", error.what());
    }
  }

  Network& network_;
  std::string_view source_;
  const DataShape& data_;
  std::map<std::string, NodeId, std::less<>> nodes_;
};

NetworkInput read_named_input(JsonObject object, std::string name) {
  NetworkInput input{.name = std::move(name), .shape = {}};
  if (object.has("shape") && object.required("shape") != json::array())
    input.shape = object.counts("shape");
  input.type = parse_element_type(object.where(), object.text("type", "float32"));
  object.finish();
  return input;
}

// "inputs": an object of descriptions by name, in the order of the names, or a list, in its order.
std::vector<NetworkInput> read_named_inputs(JsonObject& object) {
  const json& value = object.required("inputs");
  if ((!value.is_object() && !value.is_array()) || value.empty())
    object.refuse(
        "expected \"inputs\" to be an object such as {\"image\": {\"shape\": [28, 28, 1]}}",
        fmt::format("got {}", describe_json(value)));
  std::vector<NetworkInput> inputs;
  for (const auto& [key, description] : value.items()) {
    JsonObject one(description, fmt::format("{}: input {}", object.where(), key));
    std::string name = value.is_array() ? one.text("name") : key;
    inputs.push_back(read_named_input(std::move(one), std::move(name)));
  }
  return inputs;
}

// Creates the network without layers.
Network read_inputs(JsonObject& object, const DataShape& data, const std::string& name) {
  const bool has_names = object.has("inputs");
  if (!has_names && !object.has("input")) {
    if (!data.input)
      object.refuse("expected \"input\", the shape of one sample, such as [28, 28, 1]",
                    "the key is missing");
    return Network(*data.input, name);
  }
  Network network = [&] {
    if (!has_names) return Network(object.counts("input"), name);
    const std::vector<NetworkInput> inputs = read_named_inputs(object);
    try {
      return Network(inputs, name);
    } catch (const Error& error) {
      object.refuse("expected valid \"inputs\"", error.what());
    }
  }();
  if (data.input && network.inputs().size() == 1 && *data.input != network.input_shape())
    object.refuse(fmt::format("expected samples of shape {}", to_string(network.input_shape())),
                  fmt::format("the data set has {}", to_string(*data.input)));
  return network;
}

}  // namespace

Network network_from_json(std::string_view text, std::string_view source, const DataShape& data) {
  const json document = parse_json(text, ErrorCategory::input, source);
  JsonObject object(document, std::string(source));
  const std::string name = object.text("name", "network");
  Network network = read_inputs(object, data, name);
  const json& layers = object.required("layers");
  const bool has_outputs = object.has("outputs");
  object.finish();
  if (!layers.is_array() || layers.empty())
    object.refuse("expected \"layers\" to be a list of at least one layer", "got none");
  NetworkReader reader(network, source, data, object.has("inputs"));
  for (std::size_t i = 0; i < layers.size(); ++i) reader.add(layers[i], i);
  if (has_outputs) reader.add_outputs(object);
  try {
    network.check_complete();
  } catch (const Error& error) {
    object.refuse("expected a complete network", error.what());
  }
  return network;
}

std::string_view type_of(const Layer& layer) {
  const LayerType* const type = find_type(layer);
  return type == nullptr ? std::string_view() : type->name;
}

std::optional<json> network_to_json(const Network& network) {
  if (network.nodes().empty()) return std::nullopt;
  std::vector<std::string> inputs;
  for (const NetworkInput& input : network.inputs())
    inputs.push_back(has_plain_input(network) ? kInputName : input.name);
  json result = {{"name", network.name()}, {"layers", json::array()}};
  for (const Node& node : network.nodes()) {
    json description = {{"name", node.name}, {"inputs", json::array()}};
    const LayerType* const type = find_type(*node.layer);
    if (type == nullptr || std::ranges::count(inputs, node.name) > 0) return std::nullopt;
    description["type"] = type->name;
    type->write(*node.layer, description);
    for (const NodeId input : node.inputs)
      description["inputs"].push_back(is_input(input) ? inputs[input_index(input)]
                                                      : network.nodes()[input].name);
    result["layers"].push_back(std::move(description));
  }
  if (has_plain_input(network)) {
    result["input"] = network.input_shape();
  } else {
    for (const NetworkInput& input : network.inputs())
      result["inputs"].push_back({{"name", input.name},
                                  {"shape", input.shape},
                                  {"type", lockstep::to_string(input.type)}});
  }
  for (const NetworkOutput& output : network.outputs()) {
    const std::string& layer = network.nodes()[output.node].name;
    if (network.has_named_outputs())
      result["outputs"].push_back(output.name == layer ? json(layer)
                                                       : json::object({{output.name, layer}}));
  }
  return result;
}

Network read_network(const std::filesystem::path& file, const DataShape& data) {
  const auto refuse = [&file](int error) {
    throw Error(ErrorCategory::input, file.string(), "expected a readable model description",
                std::strerror(error));
  };
  std::error_code unknown;
  if (std::filesystem::is_directory(file, unknown)) refuse(EISDIR);
  std::ifstream stream(file, std::ios::binary);
  if (!stream) refuse(errno);
  // Reads no more than parse_json() accepts: a pipe or a device may be endless.
  std::string text;
  std::array<char, 1 << 16> piece{};
  while (text.size() <= JsonLimits{}.bytes && stream) {
    stream.read(piece.data(), piece.size());
    text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
  }
  return network_from_json(text, file.string(), data);
}

}  // namespace lockstep::inline v0::model
