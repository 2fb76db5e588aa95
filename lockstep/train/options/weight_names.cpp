#include "lockstep/train/options/weight_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/elementwise/pointwise.h"

namespace lockstep::inline v0::train {
namespace {

/// Parameters of timm's ViT that belong to no layer there: the rows of positions, and the row of
/// the class token, which precedes them.
constexpr std::string_view kPositions = "pos_embed";
constexpr std::string_view kClassToken = "cls_token";

/// Returns PyTorch's name of a layer's parameter.
std::string_view torch_name(std::string_view name) {
  using Spelling = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Spelling, 6> kSpellings{{{"kernel", "weight"},
                                                {"embeddings", "weight"},
                                                {"gamma", "weight"},
                                                {"beta", "bias"},
                                                {"moving_mean", "running_mean"},
                                                {"moving_variance", "running_var"}}};
  const auto* const found = std::ranges::find(kSpellings, name, &Spelling::first);
  return found == kSpellings.end() ? name : found->second;
}

/// `flattened`: the channels of the flattened image that the layer reads, or 0.
NamedWeight torch_weight(const std::string& layer, const model::ParameterInfo& entry,
                         std::int64_t flattened, std::span<float> flat) {
  const std::string last = entry.name.substr(layer.size() + 1);
  NamedWeight weight{.name = fmt::format("{}.{}", layer, torch_name(last)),
                     .shape = entry.shape,
                     .layer = layer,
                     .values = model::ParameterTable::slice(flat, entry)};
  if (layer == kPositions && entry.shape.size() == 2) {
    weight.name = layer;
    weight.shape.insert(weight.shape.begin(), 1);
  } else if (entry.shape.size() == 4 && last == "kernel") {
    weight.channels = entry.shape[3];
    weight.shape = {entry.shape[0], entry.shape[3], entry.shape[1], entry.shape[2]};
  } else if (entry.shape.size() == 3 && last == "kernel") {
    weight.channels = entry.shape[2];
    weight.shape = {entry.shape[0], entry.shape[2], entry.shape[1]};
  } else if (entry.shape.size() == 2 && last == "kernel") {
    weight.channels = flattened;
  }
  return weight;
}

/// Returns name(node, entry, flat) of each array, in the order of the layers.
template <typename Name>
std::vector<NamedWeight> all_weights(const model::Network& network, std::span<float> parameters,
                                     std::span<float> buffers, const Name& name) {
  std::vector<NamedWeight> all;
  for (std::size_t n = 0; n < network.nodes().size(); ++n) {
    const model::Node& node = network.nodes()[n];
    for (const std::size_t i : node.own_parameters())
      all.push_back(name(n, network.parameters().entries()[i], parameters));
    for (const std::size_t i : node.buffers)
      all.push_back(name(n, network.buffers().entries()[i], buffers));
  }
  return all;
}

/// PyTorch flattens images channels first, so the values after a flatten layer are in a different
/// order. Returns, per node, the channels of the flattened image that a dense layer reads, else 0.
/// Throws Error unless only dense layers read flattened images, after layers that keep the order.
std::vector<std::int64_t> flattened_channels(const model::Network& network, std::string_view where,
                                             std::string_view file) {
  const auto nodes = network.nodes();
  // Channels of the flattened image in a node's output.
  std::vector<std::int64_t> ordered(nodes.size());
  std::vector<std::int64_t> read(nodes.size());
  const auto refuse = [&](const model::Node& node) {
    throw Error(ErrorCategory::checkpoint, where,
                fmt::format("expected a network whose flattened images only dense layers read, for "
                            "{}, which has PyTorch's names and order of values",
                            file),
                fmt::format("got {}, where {} passes them on", network.name(), node.name));
  };
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const std::string kind = nodes[i].layer->kind();
    const model::Shape& image = network.shape(nodes[i].inputs.front());
    const auto depends_on_order = [](const model::Shape& shape) {
      return shape.size() == 3 && shape[0] * shape[1] > 1 && shape[2] > 1;
    };
    const bool is_flat = nodes[i].output_shape.size() == 1;
    const bool keeps_channels =
        kind == "reshape" && !image.empty() && nodes[i].output_shape.back() == image.back();
    if ((kind == "flatten" || (kind == "reshape" && is_flat)) && depends_on_order(image))
      ordered[i] = image[2];
    else if (kind == "permute" || (kind == "reshape" && !keeps_channels))
      if (depends_on_order(image) || depends_on_order(nodes[i].output_shape)) refuse(nodes[i]);
    for (const model::NodeId input : nodes[i].inputs) {
      const std::int64_t channels = model::is_input(input) ? 0 : ordered[input];
      if (channels == 0) continue;
      if (kind == "dense")
        read[i] = channels;
      else if (kind == "re_lu" || kind == "dropout" || kind == "flatten" ||
               (kind == "reshape" && is_flat) ||
               dynamic_cast<const model::PointwiseLayer*>(nodes[i].layer.get()) != nullptr)
        ordered[i] = channels;
      else
        refuse(nodes[i]);
    }
  }
  for (const model::NetworkOutput& output : network.outputs())
    if (!nodes.empty() && ordered[output.node] > 0) refuse(nodes[output.node]);
  return read;
}

/// Calls visit(index channels last, index channels first) for each value.
template <typename Visit>
void each_value(const NamedWeight& weight, const Visit& visit) {
  const auto outputs = static_cast<std::size_t>(weight.shape.front());
  const auto channels = static_cast<std::size_t>(weight.channels);
  const std::size_t positions = weight.values.size() / outputs / channels;
  for (std::size_t output = 0; output < outputs; ++output)
    for (std::size_t position = 0; position < positions; ++position)
      for (std::size_t channel = 0; channel < channels; ++channel)
        visit((output * positions + position) * channels + channel,
              (output * channels + channel) * positions + position);
}

}  // namespace

void NamedWeight::set(std::span<const float> from) const {
  if (is_addend) {
    std::ranges::transform(values, from, values.begin(), std::plus());
  } else if (channels > 0) {
    each_value(*this, [&](std::size_t last, std::size_t first) { values[last] = from[first]; });
  } else if (transposed) {
    const auto inputs = static_cast<std::size_t>(shape[0]);
    const auto outputs = static_cast<std::size_t>(shape[1]);
    for (std::size_t output = 0; output < outputs; ++output)
      for (std::size_t input = 0; input < inputs; ++input)
        values[output * inputs + input] = from[input * outputs + output];
  } else {
    std::ranges::copy(from.first(values.size()), values.begin());
  }
}

std::vector<float> NamedWeight::stored() const {
  if (is_addend) return std::vector<float>(values.size());
  if (channels == 0) return {values.begin(), values.end()};
  std::vector<float> moved(values.size());
  each_value(*this, [&](std::size_t last, std::size_t first) { moved[first] = values[last]; });
  return moved;
}

std::vector<NamedWeight> own_weights(const model::Network& network, std::span<float> parameters,
                                     std::span<float> buffers) {
  return all_weights(network, parameters, buffers,
                     [&](std::size_t n, const model::ParameterInfo& entry, std::span<float> flat) {
                       return NamedWeight{.name = entry.name,
                                          .shape = entry.shape,
                                          .layer = network.nodes()[n].name,
                                          .values = model::ParameterTable::slice(flat, entry)};
                     });
}

std::vector<NamedWeight> torch_weights(const model::Network& network, std::span<float> parameters,
                                       std::span<float> buffers, std::string_view where,
                                       std::string_view file) {
  const std::vector<std::int64_t> flattened = flattened_channels(network, where, file);
  std::vector<NamedWeight> weights =
      all_weights(network, parameters, buffers,
                  [&](std::size_t n, const model::ParameterInfo& entry, std::span<float> flat) {
                    return torch_weight(network.nodes()[n].name, entry, flattened[n], flat);
                  });
  const auto positions = std::ranges::find(weights, kPositions, &NamedWeight::name);
  if (positions != weights.end() &&
      std::ranges::find(network.nodes(), kClassToken, &model::Node::name) !=
          network.nodes().end()) {
    const std::int64_t width = positions->shape.back();
    weights.insert(positions + 1,
                   NamedWeight{.name = std::string(kClassToken),
                               .shape = {1, 1, width},
                               .layer = positions->layer,
                               .values = positions->values.first(static_cast<std::size_t>(width)),
                               .is_addend = true});
  }
  return weights;
}

}  // namespace lockstep::inline v0::train
