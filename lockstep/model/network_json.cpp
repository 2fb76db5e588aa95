#include "lockstep/model/network_json.h"

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
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/model/layers/json_object.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::model {
namespace {

using nlohmann::json;
using LayerPointer = std::shared_ptr<const Layer>;

constexpr const char* kInputName = "input";  // of the network's input, in "inputs"

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
  NetworkReader(Network& network, std::string_view source, const DataShape& data)
      : network_(network), source_(source), data_(data) {}

  void add(const json& description, std::size_t index) {
    JsonObject object(description,
                      fmt::format("{}: layer {}{}", source_, index, label(description)));
    const LayerPointer layer = read_layer(object, data_);
    const LayerPointer activation = read_activation(object, data_);
    const std::string name = object.text("name", "");
    if (name == kInputName)
      object.refuse("expected a different layer name",
                    "\"input\" is reserved for the input of the network");
    const std::vector<NodeId> inputs = read_inputs(object);
    object.finish();

    NodeId end = place(object, layer, inputs, name);
    const std::string placed = network_.nodes().back().name;
    if (activation) end = place(object, activation, {end}, "");
    nodes_[placed] = end;
  }

 private:
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
    for (const std::string& name : object.texts("inputs")) inputs.push_back(node(object, name));
    if (inputs.empty()) object.refuse("expected at least one name in \"inputs\"", "got none");
    return inputs;
  }

  NodeId node(const JsonObject& object, const std::string& name) const {
    if (name == kInputName) return kInput;
    if (const auto found = nodes_.find(name); found != nodes_.end()) return found->second;
    std::vector<std::string_view> known = {kInputName};
    for (const auto& entry : nodes_) known.push_back(entry.first);
    object.refuse("expected \"inputs\" to name earlier layers", got_name(name, known));
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

Shape read_input(JsonObject& object, const DataShape& data) {
  if (!object.has("input")) {
    if (!data.input)
      object.refuse("expected \"input\", the shape of one sample, such as [28, 28, 1]",
                    "the key is missing");
    return *data.input;
  }
  Shape input = object.counts("input");
  if (data.input && *data.input != input)
    object.refuse(fmt::format("expected samples of shape {}", to_string(input)),
                  fmt::format("the data set has {}", to_string(*data.input)));
  return input;
}

}  // namespace

Network network_from_json(std::string_view text, std::string_view source, const DataShape& data) {
  const json document = parse_json(text, ErrorCategory::input, source);
  JsonObject object(document, std::string(source));
  const std::string name = object.text("name", "network");
  Network network(read_input(object, data), name);
  const json& layers = object.required("layers");
  object.finish();
  if (!layers.is_array() || layers.empty())
    object.refuse("expected \"layers\" to be a list of at least one layer", "got none");
  NetworkReader reader(network, source, data);
  for (std::size_t i = 0; i < layers.size(); ++i) reader.add(layers[i], i);
  return network;
}

std::optional<json> network_to_json(const Network& network) {
  if (network.nodes().empty()) return std::nullopt;
  json layers = json::array();
  for (const Node& node : network.nodes()) {
    json description = {{"name", node.name}, {"inputs", json::array()}};
    const auto* const type = std::ranges::find_if(
        kLayerTypes, [&](const LayerType& known) { return known.write(*node.layer, description); });
    if (type == kLayerTypes.end() || node.name == kInputName) return std::nullopt;
    description["type"] = type->name;
    for (const NodeId input : node.inputs)
      description["inputs"].push_back(input == kInput ? kInputName : network.nodes()[input].name);
    layers.push_back(std::move(description));
  }
  return json{
      {"name", network.name()}, {"input", network.input_shape()}, {"layers", std::move(layers)}};
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

}  // namespace lockstep::model
