#include "lockstep/onnx/export/int8_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"

namespace lockstep::inline v0::onnx {
namespace {

const model::Node& node_at(const model::Network& network, model::NodeId node) {
  return network.nodes()[static_cast<std::size_t>(node)];
}

}  // namespace

bool is_product(const model::Conv1D::Options& options) {
  return options.kernel == 1 && options.strides == 1 && options.groups == 1;
}

std::vector<float> quantize_channels(std::span<float> kernel, std::int64_t channels,
                                     std::span<float> bias, float input_scale, int bits) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  constexpr float kLargestBias = 1073741824;  // 2^30: leaves room for the sums
  const auto size = static_cast<std::size_t>(channels);
  const auto most = static_cast<float>((1 << (bits - 1)) - 1);
  LOCKSTEP_CHECK(bias.empty() || bias.size() == size);
  const std::size_t row = kernel.size() / size;
  std::vector<float> scales(size, 1.0f);
  for (std::size_t c = 0; c < size; ++c) {
    const std::span<float> weights = kernel.subspan(c * row, row);
    float largest = 0;
    for (const float weight : weights) largest = std::max(largest, std::abs(weight));
    const float offset = bias.empty() ? 0 : std::abs(bias[c]);
    if (largest == 0 && offset == 0) continue;
    // The product with the scale of the input must not be 0 either.
    scales[c] = std::max(
        {largest / most, offset / input_scale / kLargestBias, kSmallest, kSmallest / input_scale});
    for (float& weight : weights) weight = std::nearbyint(weight / scales[c]) * scales[c];
    if (bias.empty()) continue;
    const float step = input_scale * scales[c];
    bias[c] = std::nearbyint(bias[c] / step) * step;
  }
  return scales;
}

const model::FakeQuantize* input_range(const model::Network& network, model::NodeId node) {
  const model::NodeId input = node_at(network, node).inputs.front();
  if (model::is_input(input)) return nullptr;
  return dynamic_cast<const model::FakeQuantize*>(node_at(network, input).layer.get());
}

std::string_view why_not_int8(const model::Network& network, model::NodeId node) {
  const model::Layer& layer = *node_at(network, node).layer;
  if (!model::is_layer<model::Conv2D>(layer) && !model::is_layer<model::Conv1D>(layer) &&
      !model::is_layer<model::DepthwiseConv2D>(layer) && !model::is_layer<model::Dense>(layer))
    return "a type without an integer form";
  if (input_range(network, node) == nullptr) return "an input that is no fake_quantize";
  return {};
}

bool has_int8_bias(const model::Network& network, model::NodeId node) {
  const model::Node& layer = node_at(network, node);
  if (model::is_layer<model::Dense>(*layer.layer))
    return network.shape(layer.inputs.front()).size() == 1;
  const auto* const row = dynamic_cast<const model::Conv1D*>(layer.layer.get());
  return row == nullptr || !is_product(row->options());
}

void round_int8_layer(const model::Network& network, model::NodeId node,
                      std::span<float> parameters, int weight_bits) {
  LOCKSTEP_CHECK(why_not_int8(network, node).empty());
  const model::Node& layer = node_at(network, node);
  const auto array = [&](const char* name) -> std::span<float> {
    const model::ParameterInfo* const entry =
        network.parameters().find(fmt::format("{}/{}", layer.name, name));
    return entry == nullptr ? std::span<float>() : model::ParameterTable::slice(parameters, *entry);
  };
  quantize_channels(array("kernel"), layer.output_shape.back(),
                    has_int8_bias(network, node) ? array("bias") : std::span<float>(),
                    input_range(network, node)->function().scale, weight_bits);
}

}  // namespace lockstep::inline v0::onnx
