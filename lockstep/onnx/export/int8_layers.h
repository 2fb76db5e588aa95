// The weights of layers that runtimes compute with 8-bit integers.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/model/layers/conv_2d/derived.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::onnx {

/// Rounds a kernel, whose first axis is its `channels` output channels, in place to the values that
/// int8 can store with a scale for each channel: round(w / scale) * scale, ties to even, with
/// integers from -n to n, where n = 2^(bits - 1) - 1. Returns the scales: max|w| / n, larger if
/// `bias` would not fit into int32, and 1 for a channel of zeros. `bias`, one number for each
/// channel or empty, is rounded to multiples of `input_scale` * scale. All values must be finite.
std::vector<float> quantize_channels(std::span<float> kernel, std::int64_t channels,
                                     std::span<float> bias = {}, float input_scale = 1,
                                     int bits = 8);

/// Whether a conv1d is the product of its input and a matrix.
bool is_product(const model::Conv1D::Options& options);

/// The fake_quantize layer that is the input of `node`; null if it is another layer.
const model::FakeQuantize* input_range(const model::Network& network, model::NodeId node);

/// The reason why the kernel of `node` cannot be stored as int8; empty if it can be: the layer is a
/// conv2d, conv1d, depthwise_conv2d or dense, and its input is a fake_quantize.
std::string_view why_not_int8(const model::Network& network, model::NodeId node);

/// Whether the bias of `node`, a layer of such a type, is stored as int32. The bias of a dense
/// layer over more than one axis, and of a conv1d that is equivalent to one, remains float32.
bool has_int8_bias(const model::Network& network, model::NodeId node);

/// Rounds kernel and bias of the layer `node` in `parameters`, laid out as network.parameters(), to
/// the values that export_network() stores for ExportOptions::int8_layers and `weight_bits`.
/// why_not_int8() must be empty.
void round_int8_layer(const model::Network& network, model::NodeId node,
                      std::span<float> parameters, int weight_bits = 8);

}  // namespace lockstep::inline v0::onnx
