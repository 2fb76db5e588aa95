#include "lockstep/model/network/fold_normalizations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::model {
namespace {

/// `layer` with a bias, if it is an L; null if it is not.
template <typename L>
std::shared_ptr<const Layer> with_bias_if(const Layer& layer) {
  const auto* const own = dynamic_cast<const L*>(&layer);
  if (own == nullptr) return nullptr;
  auto options = own->options();
  options.use_bias = true;
  return std::make_shared<const L>(options);
}

/// `layer` with a bias, if normalizations can be folded into layers of its type; null if not.
std::shared_ptr<const Layer> with_bias(const Layer& layer) {
  for (const auto try_type :
       {with_bias_if<Conv2D>, with_bias_if<Conv1D>, with_bias_if<DepthwiseConv2D>,
        with_bias_if<Conv2DTranspose>, with_bias_if<Dense>})
    if (auto changed = try_type(layer)) return changed;
  return nullptr;
}

bool is_max_pooling(const Layer& layer) {
  return is_layer<MaxPool2D>(layer) || is_layer<GlobalMaxPooling2D>(layer);
}

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

ChannelAffine affine_of(const NamedArrays& arrays, const Node& normalization) {
  const std::string& layer = normalization.name;
  const double epsilon =
      dynamic_cast<const BatchNormalization&>(*normalization.layer).options().epsilon;
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
  // Whether `node` is a layer that fulfils `condition` and has a single reader.
  const auto is_part = [&](NodeId node, const auto& condition) {
    return !is_input(node) && readers[static_cast<std::size_t>(node)] == 1 &&
           condition(*nodes[static_cast<std::size_t>(node)].layer);
  };
  const auto is_foldable = [](const Layer& layer) { return with_bias(layer) != nullptr; };
  std::map<NodeId, NodeId> folds;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!is_layer<BatchNormalization>(*nodes[i].layer)) continue;
    NodeId before = nodes[i].inputs.front();
    const bool is_pooled = is_part(before, is_max_pooling);
    if (is_pooled) before = nodes[static_cast<std::size_t>(before)].inputs.front();
    if (!is_part(before, is_foldable) || (is_pooled && !is_increasing(affine_of(arrays, nodes[i]))))
      continue;
    folds[static_cast<NodeId>(i)] = before;
  }
  return folds;
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
        result.add_node(folded_layers.contains(id) ? with_bias(*node.layer) : node.layer,
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
    const auto array = [&](const char* name) {
      const ParameterInfo* const entry =
          result.parameters().find(fmt::format("{}/{}", node.name, name));
      LOCKSTEP_CHECK(entry != nullptr);
      return ParameterTable::slice(std::span(folded), *entry);
    };
    fold(affine_of(arrays, of), is_layer<Conv2DTranspose>(*node.layer), array("kernel"),
         array("bias"));
  }
  std::vector<float> kept = carried_over(network.buffers(), buffers, result.buffers());
  return {
      .network = std::move(result), .parameters = std::move(folded), .buffers = std::move(kept)};
}

}  // namespace lockstep::inline v0::model
