// The arrays of layers that other programs compute with 8-bit integers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/network.h"

namespace lockstep::onnx {

/// Rounds a kernel, whose first axis is its `channels` output channels, in place to the values that
/// int8 can store with a scale for each channel: round(w / scale) * scale, ties to even, with
/// integers from -n to n, where n = 2^(bits - 1) - 1. Returns the scales: max|w| / n, larger where
/// `bias` would not fit into int32 otherwise, and 1 for a channel of zeros. `bias`, one number for
/// each channel or empty, is rounded to multiples of `input_scale` * scale. All values must be
/// finite.
std::vector<float> quantize_channels(std::span<float> kernel, std::int64_t channels,
                                     std::span<float> bias = {}, float input_scale = 1,
                                     int bits = 8);

/// The layer that gives the range of the input of `node`; null if that is no fake_quantize.
const model::FakeQuantize* input_range(const model::Network& network, model::NodeId node);

/// What the layer `node` is instead of one whose kernel can be stored as int8; empty if it can be:
/// it is a conv2d, conv1d, depthwise_conv2d or dense, and its input is a fake_quantize.
std::string_view why_not_int8(const model::Network& network, model::NodeId node);

/// Whether the bias of the layer `node`, of such a type, is stored as int32. That of a dense layer
/// over more than one axis stays float32, as in a conv1d that is one.
bool has_int8_bias(const model::Network& network, model::NodeId node);

/// Rounds kernel and bias of the layer `node` in `parameters`, laid out as network.parameters(), to
/// the values that export_network() stores for ExportOptions::int8_layers and `weight_bits`.
/// why_not_int8() must be empty.
void round_int8_layer(const model::Network& network, model::NodeId node,
                      std::span<float> parameters, int weight_bits = 8);

}  // namespace lockstep::onnx
