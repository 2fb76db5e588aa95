#include "lockstep/model/network/fold_normalizations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/model/layer/json_object.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network_json.h"

namespace lockstep::inline v0::model {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kFoldable{"conv2d", "conv1d", "depthwise_conv2d",
                                                    "conv2d_transpose", "dense"};
constexpr std::array<std::string_view, 2> kMaxPoolings{"max_pool2d", "global_max_pooling2d"};

/// A normalization with moving statistics: factor * x + term per channel.
struct ChannelAffine {
  std::vector<double> factor;
  std::vector<double> term;
};

/// The arrays of a network by name.
struct NamedArrays {
  const Network& network;
  std::span<const float> parameters;
  std::span<const float> buffers;

  std::span<const float> at(const std::string& layer, const char* name) const {
    const std::string full = fmt::format("{}/{}", layer, name);
    if (const ParameterInfo* const entry = network.parameters().find(full))
      return ParameterTable::slice(parameters, *entry);
    const ParameterInfo* const entry = network.buffers().find(full);
    LOCKSTEP_CHECK(entry != nullptr);
    return ParameterTable::slice(buffers, *entry);
  }
};

ChannelAffine affine_of(const NamedArrays& arrays, const std::string& layer, double epsilon) {
  const std::span<const float> gamma = arrays.at(layer, "gamma");
  const std::span<const float> beta = arrays.at(layer, "beta");
  const std::span<const float> mean = arrays.at(layer, "moving_mean");
  const std::span<const float> variance = arrays.at(layer, "moving_variance");
  ChannelAffine affine;
  for (std::size_t c = 0; c < gamma.size(); ++c) {
    affine.factor.push_back(double{gamma[c]} / std::sqrt(double{variance[c]} + epsilon));
    affine.term.push_back(double{beta[c]} - double{mean[c]} * affine.factor.back());
  }
  return affine;
}

bool is_increasing(const ChannelAffine& affine) {
  return std::ranges::all_of(affine.factor, [](double factor) { return factor >= 0; });
}

/// The layers into which normalizations are folded, by normalization. A maximum commutes with
/// increasing functions, so a max pooling may be between the two.
std::map<NodeId, NodeId> find_folds(const NamedArrays& arrays) {
  const std::span<const Node> nodes = arrays.network.nodes();
  std::vector<int> readers(nodes.size());
  for (const Node& node : nodes)
    for (const NodeId input : node.inputs)
      if (!is_input(input)) ++readers[static_cast<std::size_t>(input)];
  for (const NetworkOutput& output : arrays.network.outputs())
    if (!is_input(output.node)) ++readers[static_cast<std::size_t>(output.node)];
  // Whether `node` has one of these types and a single reader.
  const auto is_part = [&](NodeId node, std::span<const std::string_view> types) {
    if (is_input(node) || readers[static_cast<std::size_t>(node)] != 1) return false;
    const std::string_view type =
        describe_layer(*nodes[static_cast<std::size_t>(node)].layer).first;
    return std::ranges::find(types, type) != types.end();
  };
  std::map<NodeId, NodeId> folds;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto [type, options] = describe_layer(*nodes[i].layer);
    if (type != "batch_normalization") continue;
    NodeId before = nodes[i].inputs.front();
    const bool is_pooled = is_part(before, kMaxPoolings);
    if (is_pooled) before = nodes[static_cast<std::size_t>(before)].inputs.front();
    if (!is_part(before, kFoldable) ||
        (is_pooled &&
         !is_increasing(affine_of(arrays, nodes[i].name, options.at("epsilon").get<double>()))))
      continue;
    folds[static_cast<NodeId>(i)] = before;
  }
  return folds;
}

std::shared_ptr<const Layer> with_bias(const std::shared_ptr<const Layer>& layer) {
  auto [name, options] = describe_layer(*layer);
  if (options.at("use_bias").get<bool>()) return layer;
  options["use_bias"] = true;
  const auto* const type = std::ranges::find(kLayerTypes, name, &LayerType::name);
  // Converts counts to unsigned, as layers read them.
  options = parse_json(dump_json(options), ErrorCategory::input, name);
  JsonObject object(options, std::string(name));
  return type->read(object, {});
}

/// Writes kernel * factor, and bias * factor + term, to the arrays of the folded network.
void fold(const ChannelAffine& affine, bool channels_are_last, std::span<float> kernel,
          std::span<float> bias) {
  const std::size_t channels = affine.factor.size();
  LOCKSTEP_CHECK_OP(bias.size(), ==, channels);
  const std::size_t row = kernel.size() / channels;
  for (std::size_t i = 0; i < kernel.size(); ++i)
    kernel[i] = static_cast<float>(double{kernel[i]} *
                                   affine.factor[channels_are_last ? i % channels : i / row]);
  for (std::size_t c = 0; c < channels; ++c)
    bias[c] = static_cast<float>(double{bias[c]} * affine.factor[c] + affine.term[c]);
}

/// The values of the entries of `to`, copied from the entries of `from` by name.
std::vector<float> carried_over(const ParameterTable& from, std::span<const float> values,
                                const ParameterTable& to) {
  std::vector<float> result(to.flat_size());
  std::map<std::string_view, const ParameterInfo*> by_name;
  for (const ParameterInfo& entry : from.entries()) by_name[entry.name] = &entry;
  for (const ParameterInfo& entry : to.entries())
    if (const auto found = by_name.find(entry.name); found != by_name.end())
      std::ranges::copy(ParameterTable::slice(values, *found->second),
                        ParameterTable::slice(std::span(result), entry).begin());
  return result;
}

}  // namespace

FoldedNetwork fold_normalizations(const Network& network, std::span<const float> parameters,
                                  std::span<const float> buffers) {
  LOCKSTEP_CHECK_OP(parameters.size(), ==, network.parameters().flat_size());
  LOCKSTEP_CHECK_OP(buffers.size(), ==, network.buffers().flat_size());
  const NamedArrays arrays{network, parameters, buffers};
  const std::map<NodeId, NodeId> folds = find_folds(arrays);
  std::set<NodeId> folded_layers;
  for (const auto& [normalization, before] : folds) folded_layers.insert(before);
  std::vector<NodeId> places;  // ids of the nodes in the result
  Network result(network.inputs(), network.name());
  const auto place_of = [&](NodeId node) {
    return is_input(node) ? node : places[static_cast<std::size_t>(node)];
  };
  for (const Node& node : network.nodes()) {
    const auto id = static_cast<NodeId>(places.size());
    if (folds.contains(id)) {
      places.push_back(place_of(node.inputs.front()));
      continue;
    }
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs) inputs.push_back(place_of(input));
    places.push_back(
        result.add_node(folded_layers.contains(id) ? with_bias(node.layer) : node.layer,
                        std::move(inputs), node.name));
  }
  const bool is_default = !network.has_named_outputs() && network.last() >= 0 &&
                          place_of(network.last()) == result.last() &&
                          result.nodes().back().name == network.nodes().back().name;
  if (!is_default)
    for (const NetworkOutput& output : network.outputs())
      if (!is_input(output.node)) result.output(output.name, place_of(output.node));

  std::vector<float> folded = carried_over(network.parameters(), parameters, result.parameters());
  for (const auto& [normalization, before] : folds) {
    const Node& node = network.nodes()[static_cast<std::size_t>(before)];
    const Node& of = network.nodes()[static_cast<std::size_t>(normalization)];
    const json options = describe_layer(*of.layer).second;
    const auto array = [&](const char* name) {
      const ParameterInfo* const entry =
          result.parameters().find(fmt::format("{}/{}", node.name, name));
      LOCKSTEP_CHECK(entry != nullptr);
      return ParameterTable::slice(std::span(folded), *entry);
    };
    fold(affine_of(arrays, of.name, options.at("epsilon").get<double>()),
         describe_layer(*node.layer).first == "conv2d_transpose", array("kernel"), array("bias"));
  }
  std::vector<float> kept = carried_over(network.buffers(), buffers, result.buffers());
  return {
      .network = std::move(result), .parameters = std::move(folded), .buffers = std::move(kept)};
}

}  // namespace lockstep::inline v0::model
