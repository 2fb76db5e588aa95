// Export of layers of images, vectors and single elements.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/onnx/element_operators.h"
#include "lockstep/onnx/export/exporter.h"
#include "lockstep/onnx/export/int8_layers.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;
using Ints = std::vector<std::int64_t>;

std::vector<Attribute> attributes_of(const model::WindowGeometry& window) {
  return {{"kernel_shape", Ints{window.kernel_height, window.kernel_width}},
          {"strides", Ints{window.stride_height, window.stride_width}},
          {"pads", Ints{window.pad_top, window.pad_left, window.pad_bottom, window.pad_right}}};
}

// ---- Weights

/// A kernel in Lockstep's order, or reordered without changing the number of elements and of output
/// channels, and a bias.
struct Weights {
  std::vector<float> kernel;
  std::vector<float> bias;    // may be empty
  std::vector<float> scales;  // one per output channel, if the kernel is stored as int8
  float input_scale = 1;
};

/// The weights of a layer with `kernel` and optional `bias`.
Weights weights_of(const LayerExport& layer) {
  const auto array = [&](const char* name) -> std::vector<float> {
    if (layer.find(name) == nullptr) return {};
    const std::span<const float> values = layer.values(name);
    return {values.begin(), values.end()};
  };
  Weights weights{.kernel = array("kernel"), .bias = array("bias"), .scales = {}};
  if (!layer.is_int8()) return weights;
  const model::Network& network = layer.exporter.network();
  weights.input_scale = input_range(network, layer.id)->function().scale;
  weights.scales = quantize_channels(
      weights.kernel, layer.shape().back(),
      has_int8_bias(network, layer.id) ? std::span(weights.bias) : std::span<float>(),
      weights.input_scale, layer.exporter.options().weight_bits);
  return weights;
}

/// Adds a constant of integers, and the DequantizeLinear that converts it to the array LAYER/part.
/// `steps` are the scales along the axis `axis`.
template <typename Integer>
std::string integer_constant(const LayerExport& layer, std::string_view part, TensorType type,
                             const Shape& shape, std::span<const float> values,
                             std::span<const float> steps, std::int64_t axis) {
  std::int64_t inner = 1;  // elements between neighbors along the axis
  for (std::size_t k = static_cast<std::size_t>(axis) + 1; k < shape.size(); ++k) inner *= shape[k];
  const auto channels = static_cast<std::int64_t>(steps.size());
  std::vector<Integer> integers(values.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i)
    integers[i] = static_cast<Integer>(std::nearbyint(values[i] / steps[i / inner % channels]));
  GraphBuilder& graph = layer.graph();
  const std::string name = layer.name(part);
  const auto constant = [&](const char* ending, const Shape& extents, auto numbers) {
    using Number = typename decltype(numbers)::value_type;
    return graph.tensor({.name = fmt::format("{}/{}", name, ending),
                         .type = std::is_same_v<Number, float> ? TensorType::float32 : type,
                         .shape = extents,
                         .bytes = bytes_of<Number>(numbers)});
  };
  const bool is_int8 = type == TensorType::int8;
  const std::string stored = constant(is_int8 ? "int8" : "int32", shape, integers);
  const std::string scale =
      constant("scale", {channels}, std::vector<float>(steps.begin(), steps.end()));
  const std::string zeros = constant("zero_point", {channels}, std::vector<Integer>(steps.size()));
  return layer.add("DequantizeLinear", {stored, scale, zeros}, {{"axis", axis}}, part);
}

/// The kernel as a constant of `shape`, whose axis `axis` are the output channels. `values` is
/// weights.kernel in the order of the shape.
std::string kernel_constant(const LayerExport& layer, const Weights& weights, const Shape& shape,
                            std::span<const float> values, std::int64_t axis = 0) {
  if (weights.scales.empty()) return layer.graph().weights(layer.name("kernel"), shape, values);
  return integer_constant<std::int8_t>(layer, "kernel", TensorType::int8, shape, values,
                                       weights.scales, axis);
}

void add_bias(const LayerExport& layer, const Weights& weights, std::vector<std::string>& inputs) {
  if (weights.bias.empty()) return;
  const Shape shape{static_cast<std::int64_t>(weights.bias.size())};
  if (weights.scales.empty() || !has_int8_bias(layer.exporter.network(), layer.id)) {
    inputs.push_back(layer.graph().floats(layer.name("bias"), shape, weights.bias));
    return;
  }
  std::vector<float> steps;
  for (const float scale : weights.scales) steps.push_back(weights.input_scale * scale);
  inputs.push_back(integer_constant<std::int32_t>(layer, "bias", TensorType::int32, shape,
                                                  weights.bias, steps, 0));
}

// ---- Convolutions and dense layers

/// A Conv2D or DepthwiseConv2D, the L, with `groups` groups of channels.
template <typename L>
Operand convolution_of(const LayerExport& layer, std::int64_t groups) {
  const auto& options = layer.options<L>();
  const Operand input = layer.exporter.channels_first(layer.input());
  const model::WindowGeometry window = model::window_geometry(
      input.shape, options.kernel, options.strides, options.padding, options.dilation);
  const std::int64_t filters = layer.shape().back();
  const std::int64_t channels = window.channels / groups;
  const Weights weights = weights_of(layer);
  std::vector<std::string> inputs{
      input.name,
      kernel_constant(layer, weights,
                      {filters, channels, window.kernel_height, window.kernel_width},
                      channels_to_front(weights.kernel, filters,
                                        window.kernel_height * window.kernel_width, channels))};
  add_bias(layer, weights, inputs);
  std::vector<Attribute> attributes = attributes_of(window);
  attributes.push_back({"group", groups});
  if (window.is_dilated())
    attributes.push_back({"dilations", Ints{window.dilation_height, window.dilation_width}});
  return {.name = layer.add("Conv", inputs, attributes),
          .shape = layer.shape(),
          .channels_first = true};
}

Operand convolution(const LayerExport& layer) {
  return convolution_of<model::Conv2D>(layer, layer.options<model::Conv2D>().groups);
}

Operand depthwise_convolution(const LayerExport& layer) {
  return convolution_of<model::DepthwiseConv2D>(layer, layer.input().shape.back());
}

Operand transposed_convolution(const LayerExport& layer) {
  const auto& options = layer.options<model::Conv2DTranspose>();
  const Operand input = layer.exporter.channels_first(layer.input());
  const Shape& output = layer.shape();
  const model::WindowGeometry window =
      model::window_geometry(output, options.kernel, options.strides, options.padding);
  const std::int64_t filters = output.back();
  const std::int64_t channels = input.shape.back();
  const Weights weights = weights_of(layer);
  std::vector<std::string> inputs{
      input.name,
      layer.graph().weights(
          layer.name("kernel"), {channels, filters, window.kernel_height, window.kernel_width},
          channels_to_front(weights.kernel, channels, window.kernel_height * window.kernel_width,
                            filters))};
  add_bias(layer, weights, inputs);
  std::vector<Attribute> attributes = attributes_of(window);
  // The part that no window covers.
  attributes.push_back(
      {"output_padding",
       Ints{output[0] - (window.stride_height * (input.shape[0] - 1) + window.kernel_height -
                         window.pad_top - window.pad_bottom),
            output[1] - (window.stride_width * (input.shape[1] - 1) + window.kernel_width -
                         window.pad_left - window.pad_right)}});
  return {.name = layer.add("ConvTranspose", inputs, attributes),
          .shape = output,
          .channels_first = true};
}

/// x W^T + b over the last axis of an array of at least two.
Operand product(const LayerExport& layer, const std::string& input, const std::string& transposed,
                const Weights& weights) {
  std::vector<std::string> sum;
  const bool has_bias = !weights.bias.empty();
  sum.push_back(
      layer.add("MatMul", {input, transposed}, {}, has_bias ? "product" : std::string_view()));
  add_bias(layer, weights, sum);
  return layer.plain(has_bias ? layer.add("Add", sum) : sum.front());
}

std::vector<float> transposed_kernel(std::span<const float> kernel, std::int64_t rows) {
  return channels_to_front(kernel, 1, rows, static_cast<std::int64_t>(kernel.size()) / rows);
}

Operand convolution_1d(const LayerExport& layer) {
  const auto& options = layer.options<model::Conv1D>();
  const std::int64_t filters = layer.shape().back();
  const std::int64_t channels = layer.input().shape.back() / options.groups;
  const Weights weights = weights_of(layer);
  if (is_product(options)) {
    const Operand rows = layer.exporter.channels_last(layer.input());
    return product(layer, rows.name,
                   kernel_constant(layer, weights, {channels, filters},
                                   transposed_kernel(weights.kernel, filters), 1),
                   weights);
  }
  const Operand input = layer.exporter.channels_first(layer.input());
  const model::WindowGeometry window =
      model::window_geometry({1, input.shape[0], input.shape[1]}, {1, options.kernel},
                             {1, options.strides}, options.padding, {1, options.dilation});
  std::vector<std::string> inputs{
      input.name,
      kernel_constant(layer, weights, {filters, channels, options.kernel},
                      channels_to_front(weights.kernel, filters, options.kernel, channels))};
  add_bias(layer, weights, inputs);
  return {.name = layer.add("Conv", inputs,
                            {{"kernel_shape", Ints{options.kernel}},
                             {"strides", Ints{options.strides}},
                             {"dilations", Ints{options.dilation}},
                             {"pads", Ints{window.pad_left, window.pad_right}},
                             {"group", options.groups}}),
          .shape = layer.shape(),
          .channels_first = true};
}

Operand dense(const LayerExport& layer) {
  const std::int64_t units = layer.shape().back();
  const Shape& shape = layer.input().shape;
  const Weights weights = weights_of(layer);
  if (shape.size() > 1) {
    const Operand rows = layer.exporter.channels_last(layer.input());
    return product(layer, rows.name,
                   kernel_constant(layer, weights, {shape.back(), units},
                                   transposed_kernel(weights.kernel, units), 1),
                   weights);
  }
  // The order of a flattened image is that of the weights of each unit.
  const Shape& image = layer.input().flattened;
  std::vector<std::string> inputs{layer.input().name};
  inputs.push_back(kernel_constant(
      layer, weights, {units, shape.back()},
      image.empty()
          ? weights.kernel
          : channels_to_front(weights.kernel, units, shape.back() / image.back(), image.back())));
  add_bias(layer, weights, inputs);
  return layer.plain(layer.add("Gemm", inputs, {{"transB", std::int64_t{1}}}));
}

Operand tied_dense(const LayerExport& layer) {
  const model::Network& network = layer.exporter.network();
  const model::ParameterInfo& entry = network.parameters().entries()[layer.node.parameters.front()];
  const std::string table = layer.exporter.shared_parameter(entry);
  const std::string input = layer.exporter.channels_last(layer.input()).name;
  Weights weights;
  if (layer.find("bias") != nullptr) {
    const std::span<const float> bias = layer.values("bias");
    weights.bias.assign(bias.begin(), bias.end());
  }
  // Both layers share one array, as in training.
  const std::string kernel = layer.add("Transpose", {table}, {{"perm", Ints{1, 0}}}, "transposed");
  return product(layer, input, kernel, weights);
}

// ---- Normalizations

Operand batch_normalization(const LayerExport& layer) {
  const auto& options = layer.options<model::BatchNormalization>();
  const Shape& shape = layer.shape();
  const Shape& image = layer.input().flattened;
  const std::int64_t channels = shape.back();
  const auto in_order = [&](std::span<const float> values) {
    return image.empty() ? std::vector<float>(values.begin(), values.end())
                         : channels_to_front(values, 1, channels / image.back(), image.back());
  };
  GraphBuilder& graph = layer.graph();
  if (layer.input().channels_first || shape.size() == 1) {  // channels are axis 1
    std::vector<std::string> inputs{layer.input().name};
    for (const char* const name : {"gamma", "beta"})
      inputs.push_back(graph.floats(layer.name(name), {channels}, in_order(layer.values(name))));
    for (const char* const name : {"moving_mean", "moving_variance"})
      inputs.push_back(
          graph.floats(layer.name(name), {channels}, in_order(layer.values(name, true))));
    return layer.like_input(
        layer.add("BatchNormalization", inputs,
                  {{"epsilon", options.epsilon}, {"momentum", options.momentum}}));
  }
  std::vector<float> factor;
  std::vector<float> term;
  for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
    const double channel_factor =
        double{layer.values("gamma")[c]} /
        std::sqrt(double{layer.values("moving_variance", true)[c]} + double{options.epsilon});
    factor.push_back(static_cast<float>(channel_factor));
    term.push_back(
        static_cast<float>(double{layer.values("beta")[c]} -
                           double{layer.values("moving_mean", true)[c]} * channel_factor));
  }
  const std::string scaled =
      layer.add("Mul", {layer.input().name, graph.floats(layer.name("factor"), {channels}, factor)},
                {}, "scaled");
  return layer.plain(
      layer.add("Add", {scaled, graph.floats(layer.name("term"), {channels}, term)}));
}

Operand layer_normalization(const LayerExport& layer) {
  const Operand input = layer.exporter.channels_last(layer.input());
  const auto array = [&](const char* name) {
    return layer.graph().floats(layer.name(name), {layer.shape().back()}, layer.values(name));
  };
  return layer.plain(layer.add("LayerNormalization", {input.name, array("gamma"), array("beta")},
                               {{"axis", std::int64_t{-1}},
                                {"epsilon", layer.options<model::LayerNormalization>().epsilon}}));
}

Operand rms_normalization(const LayerExport& layer) {
  const Operand input = layer.exporter.channels_last(layer.input());
  const std::string squares = layer.add("Mul", {input.name, input.name}, {}, "squares");
  const std::string mean = layer.add("ReduceMean", {squares},
                                     {{"axes", Ints{-1}}, {"keepdims", std::int64_t{1}}}, "mean");
  const std::string sum = layer.add(
      "Add", {mean, layer.graph().number(layer.options<model::RMSNormalization>().epsilon)}, {},
      "sum");
  const std::string root = layer.add("Sqrt", {sum}, {}, "root");
  const std::string scaled = layer.add("Div", {input.name, root}, {}, "scaled");
  const std::string gamma =
      layer.graph().floats(layer.name("gamma"), {layer.shape().back()}, layer.values("gamma"));
  return layer.plain(layer.add("Mul", {scaled, gamma}));
}

/// An instance normalization of groups, whose elements are put together, then a scale and a bias.
Operand group_normalization(const LayerExport& layer) {
  const bool is_row = layer.shape().size() == 1;
  const Operand input = is_row ? layer.exporter.channels_last(layer.input())
                               : layer.exporter.channels_first(layer.input());
  const auto& options = layer.options<model::GroupNormalization>();
  const std::int64_t groups = options.groups;
  const std::int64_t channels = layer.shape().back();
  GraphBuilder& graph = layer.graph();
  const std::vector<float> ones(static_cast<std::size_t>(groups), 1.0f);
  const std::vector<float> zeros(static_cast<std::size_t>(groups), 0.0f);
  const std::string together =
      layer.add("Reshape", {input.name, graph.integers({0, groups, -1})}, {}, "groups");
  const std::string normalized =
      layer.add("InstanceNormalization",
                {together, graph.floats(layer.name("ones"), {groups}, ones),
                 graph.floats(layer.name("zeros"), {groups}, zeros)},
                {{"epsilon", options.epsilon}}, "normalized");
  Ints extents{0, channels};
  extents.insert(extents.end(), layer.shape().begin(), layer.shape().end() - 1);
  Shape shape(layer.shape().size(), 1);
  shape.front() = channels;
  std::string value = layer.add("Reshape", {normalized, graph.integers(extents)}, {}, "channels");
  if (options.scale)
    value =
        layer.add("Mul", {value, graph.floats(layer.name("gamma"), shape, layer.values("gamma"))},
                  {}, "scaled");
  if (options.center)
    value =
        layer.add("Add", {value, graph.floats(layer.name("beta"), shape, layer.values("beta"))});
  return {.name = value, .shape = layer.shape(), .channels_first = !is_row};
}

/// Products of matrices, the second ones transposed if they are stored so.
Operand matmul(const LayerExport& layer) {
  const std::string left = layer.exporter.channels_last(layer.input()).name;
  std::string right = layer.exporter.channels_last(layer.inputs[1]).name;
  if (layer.options<model::MatMul>().transpose_b) {
    Ints axes(layer.shape().size() + 1);
    std::iota(axes.begin(), axes.end(), std::int64_t{0});
    std::swap(axes.back(), axes[axes.size() - 2]);
    right = layer.add("Transpose", {right}, {{"perm", axes}}, "transposed");
  }
  return layer.plain(layer.add("MatMul", {left, right}));
}

Operand scale(const LayerExport& layer) {
  const bool is_first = layer.input().channels_first && layer.input().flattened.empty();
  const Operand input = is_first ? layer.input() : layer.exporter.channels_last(layer.input());
  const std::int64_t channels = layer.shape().back();
  Shape shape{channels};
  if (is_first) shape.resize(layer.shape().size(), 1);
  const model::Scale::Options options = layer.options<model::Scale>();
  const bool is_buffer = !options.trainable;
  const auto array = [&](const char* name) {
    return layer.graph().floats(layer.name(name), shape, layer.values(name, is_buffer));
  };
  std::string value = input.name;
  if (options.use_scale)
    value = layer.add("Mul", {value, array("gamma")}, {},
                      options.use_bias ? "scaled" : std::string_view());
  if (options.use_bias) value = layer.add("Add", {value, array("beta")});
  return {.name = value, .shape = layer.shape(), .channels_first = is_first};
}

// ---- Pooling

Operand pooling(const LayerExport& layer) {
  const auto& options = layer.options<model::WindowPool2D>();
  const Operand input = layer.exporter.channels_first(layer.input());
  const model::WindowGeometry window = model::window_geometry(
      input.shape, options.pool, options.strides.value_or(options.pool), options.padding);
  return {.name = layer.add(layer.type == "max_pool2d" ? "MaxPool" : "AveragePool", {input.name},
                            attributes_of(window)),
          .shape = layer.shape(),
          .channels_first = true};
}

Operand global_pooling(const LayerExport& layer) {
  const Operand input = layer.exporter.channels_first(layer.input());
  const bool is_max = layer.type == "global_max_pooling2d";
  const std::string pooled =
      layer.add(is_max ? "GlobalMaxPool" : "GlobalAveragePool", {input.name}, {}, "pooled");
  return layer.plain(layer.add("Flatten", {pooled}, {{"axis", std::int64_t{1}}}));
}

Operand up_sampling(const LayerExport& layer) {
  const Operand input = layer.exporter.channels_first(layer.input());
  const auto& options = layer.options<model::UpSampling2D>();
  const std::vector<float> factors{1, 1, static_cast<float>(options.size.height),
                                   static_cast<float>(options.size.width)};
  const std::string scales = layer.graph().floats(layer.name("scales"), {4}, factors);
  const bool is_nearest = options.interpolation == model::Interpolation::nearest;
  std::vector<Attribute> attributes{
      {"mode", std::string(is_nearest ? "nearest" : "linear")},
      {"coordinate_transformation_mode", std::string(is_nearest ? "asymmetric" : "half_pixel")}};
  if (is_nearest) attributes.push_back({"nearest_mode", std::string("floor")});
  return {.name = layer.add("Resize", {input.name, "", scales}, attributes),
          .shape = layer.shape(),
          .channels_first = true};
}

// ---- Single elements

/// The function of a layer, an F with its options.
template <typename F>
const F& function_of(const LayerExport& layer) {
  return layer.as<model::FunctionLayer<F>>().function();
}

/// The option `member` of the function of a layer.
template <typename F>
float number_of(const LayerExport& layer, float F::*member) {
  return function_of<F>(layer).*member;
}

/// A layer that is one operator (element_operators.h), whose numbers are the options kOptions of
/// the layer's function.
template <auto... kOptions>
Operand element_wise(const LayerExport& layer) {
  const auto row = std::ranges::find(element_operators(), layer.type, &ElementOperator::layer);
  LOCKSTEP_CHECK(row != element_operators().end());
  std::vector<Attribute> attributes;
  (attributes.push_back({row->numbers[attributes.size()].attribute, number_of(layer, kOptions)}),
   ...);
  return layer.like_input(
      layer.add(std::string(row->type), {layer.input().name}, std::move(attributes)));
}

Operand clipped(const LayerExport& layer, float least, float most) {
  GraphBuilder& graph = layer.graph();
  return layer.like_input(
      layer.add("Clip", {layer.input().name, graph.number(least), graph.number(most)}));
}

Operand relu6(const LayerExport& layer) { return clipped(layer, 0, 6); }

Operand hard_tanh(const LayerExport& layer) {
  const auto& function = function_of<model::HardTanhFunction>(layer);
  return clipped(layer, function.min_value, function.max_value);
}

Operand rescaling(const LayerExport& layer) {
  const auto& function = function_of<model::RescalingFunction>(layer);
  const std::string scaled =
      layer.add("Mul", {layer.input().name, layer.graph().number(function.scale)}, {}, "scaled");
  return layer.like_input(layer.add("Add", {scaled, layer.graph().number(function.offset)}));
}

Operand silu(const LayerExport& layer) {
  std::string exponent = layer.input().name;
  if (const float beta = function_of<model::SiluFunction>(layer).beta; beta != 1)
    exponent = layer.add("Mul", {exponent, layer.graph().number(beta)}, {}, "exponent");
  const std::string share = layer.add("Sigmoid", {exponent}, {}, "sigmoid");
  return layer.like_input(layer.add("Mul", {layer.input().name, share}));
}

/// Opset 17 has no Mish.
Operand mish(const LayerExport& layer) {
  const std::string softplus = layer.add("Softplus", {layer.input().name}, {}, "softplus");
  const std::string share = layer.add("Tanh", {softplus}, {}, "tanh");
  return layer.like_input(layer.add("Mul", {layer.input().name, share}));
}

/// 0.5 x (1 + erf(x / sqrt 2)), or 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
Operand gelu(const LayerExport& layer) {
  GraphBuilder& graph = layer.graph();
  const std::string& x = layer.input().name;
  std::string inner;
  if (function_of<model::GeluFunction>(layer).approximate) {
    const std::string square = layer.add("Mul", {x, x}, {}, "square");
    const std::string cube = layer.add("Mul", {square, x}, {}, "cube");
    const std::string small = layer.add("Mul", {cube, graph.number(0.044715f)}, {}, "small");
    const std::string sum = layer.add("Add", {x, small}, {}, "sum");
    const auto scale = static_cast<float>(std::sqrt(2 / std::numbers::pi));
    const std::string scaled = layer.add("Mul", {sum, graph.number(scale)}, {}, "scaled");
    inner = layer.add("Tanh", {scaled}, {}, "tanh");
  } else {
    const std::string scaled =
        layer.add("Div", {x, graph.number(std::numbers::sqrt2_v<float>)}, {}, "scaled");
    inner = layer.add("Erf", {scaled}, {}, "erf");
  }
  const std::string twice = layer.add("Add", {inner, graph.number(1)}, {}, "twice");
  const std::string product = layer.add("Mul", {x, twice}, {}, "product");
  return layer.like_input(layer.add("Mul", {product, graph.number(0.5f)}));
}

Operand softmax(const LayerExport& layer) {
  const bool is_image = layer.input().channels_first && layer.input().flattened.empty();
  return layer.like_input(
      layer.add("Softmax", {layer.input().name}, {{"axis", std::int64_t{is_image ? 1 : -1}}}));
}

Operand fake_quantize(const LayerExport& layer) {
  const auto& function = function_of<model::FakeQuantizeFunction>(layer);
  const bool is_int8 = function.dtype == model::Int8Type::int8;
  GraphBuilder& graph = layer.graph();
  const std::string step = graph.floats(layer.name("scale"), {}, {&function.scale, 1});
  const std::string zero =
      graph.tensor({.name = layer.name("zero_point"),
                    .type = is_int8 ? TensorType::int8 : TensorType::uint8,
                    .shape = {},
                    .bytes = std::string(1, static_cast<char>(function.zero_point))});
  const std::string integers =
      layer.add("QuantizeLinear", {layer.input().name, step, zero}, {}, "quantized");
  return layer.like_input(layer.add("DequantizeLinear", {integers, step, zero}));
}

/// Kept for further training; the identity in inference.
Operand dropout(const LayerExport& layer) {
  if (layer.exporter.options().fold) return layer.like_input(layer.input().name);
  const std::string ratio = layer.graph().number(layer.options<model::Dropout>().rate);
  return layer.like_input(layer.add("Dropout", {layer.input().name, ratio}));
}

/// A sum or product of several arrays.
template <const char* kOperator>
Operand combined_inputs(const LayerExport& layer) {
  const Operand& first = layer.input();
  // A repeated input gets the order of the other one, which is larger.
  const bool is_broadcast = layer.inputs.size() == 2 && first.shape != layer.inputs[1].shape;
  if (is_broadcast &&
      std::ranges::any_of(layer.inputs, [](const Operand& one) { return one.channels_first; })) {
    const std::string left = layer.exporter.channels_first(first).name;
    const std::string right = layer.exporter.channels_first(layer.inputs[1]).name;
    return {.name = layer.add(kOperator, {left, right}),
            .shape = layer.shape(),
            .channels_first = true};
  }
  const bool have_one_order = std::ranges::all_of(layer.inputs, [&](const Operand& input) {
    return input.channels_first == first.channels_first && input.flattened == first.flattened;
  });
  const auto of = [&](const Operand& input) {
    return have_one_order ? input.name : layer.exporter.channels_last(input).name;
  };
  std::string value = of(first);
  for (std::size_t i = 1; i < layer.inputs.size(); ++i)
    value = layer.add(kOperator, {value, of(layer.inputs[i])}, {},
                      i + 1 < layer.inputs.size() ? fmt::format("{}", i) : std::string());
  return have_one_order ? layer.like_input(value) : layer.plain(value);
}
constexpr char kAdd[] = "Add";
constexpr char kMul[] = "Mul";

// ---- Shapes

/// Flatten and reshape, which keep the order of the elements.
Operand reshaped_input(const LayerExport& layer) {
  const Operand& input = layer.input();
  if (layer.shape() == input.shape) return layer.like_input(input.name);
  if (layer.shape().size() == 1 && input.flattened.empty()) {
    const bool matters = input.channels_first && input.shape.back() > 1 &&
                         input.shape.back() < model::element_count(input.shape);
    return {.name = layer.add("Flatten", {input.name}, {{"axis", std::int64_t{1}}}),
            .shape = layer.shape(),
            .channels_first = matters,
            .flattened = matters ? input.shape : Shape()};
  }
  Ints extents{0};
  extents.insert(extents.end(), layer.shape().begin(), layer.shape().end());
  return layer.plain(layer.add(
      "Reshape", {layer.exporter.channels_last(input).name, layer.graph().integers(extents)}));
}

Operand permuted(const LayerExport& layer) {
  Ints axes{0};
  for (const std::int64_t axis : layer.options<model::Permute>().dims) axes.push_back(axis);
  return layer.plain(
      layer.add("Transpose", {layer.exporter.channels_last(layer.input()).name}, {{"perm", axes}}));
}

Operand concatenated(const LayerExport& layer) {
  const auto rank = static_cast<std::int64_t>(layer.shape().size());
  std::int64_t axis = layer.options<model::Concatenate>().axis;
  if (axis < 0) axis += rank + 1;  // with the batch
  const bool are_images = rank > 1 && std::ranges::all_of(layer.inputs, &Operand::channels_first);
  std::vector<std::string> names;
  for (const Operand& input : layer.inputs)
    names.push_back(are_images ? input.name : layer.exporter.channels_last(input).name);
  if (are_images) axis = axis == rank ? 1 : axis + 1;
  return {.name = layer.add("Concat", names, {{"axis", axis}}),
          .shape = layer.shape(),
          .channels_first = are_images};
}

Operand zero_padding(const LayerExport& layer) {
  const Operand input = layer.exporter.channels_first(layer.input());
  const auto& zeros = layer.options<model::ZeroPadding2D>();
  const std::string pads =
      layer.graph().integers({0, 0, zeros.top, zeros.left, 0, 0, zeros.bottom, zeros.right});
  return {.name = layer.add("Pad", {input.name, pads}, {{"mode", std::string("constant")}}),
          .shape = layer.shape(),
          .channels_first = true};
}

constexpr LayerRow kArrayLayers[] = {
    {"conv2d", convolution},
    {"conv1d", convolution_1d},
    {"depthwise_conv2d", depthwise_convolution},
    {"conv2d_transpose", transposed_convolution},
    {"dense", dense},
    {"tied_dense", tied_dense},
    {"batch_normalization", batch_normalization},
    {"layer_normalization", layer_normalization},
    {"rms_normalization", rms_normalization},
    {"group_normalization", group_normalization},
    {"scale", scale},
    {"matmul", matmul},
    {"max_pool2d", pooling},
    {"average_pool2d", pooling},
    {"global_max_pooling2d", global_pooling},
    {"global_average_pooling2d", global_pooling},
    {"up_sampling2d", up_sampling},
    {"relu", element_wise<>},
    {"relu6", relu6},
    {"leaky_relu", element_wise<&model::LeakyReluFunction::negative_slope>},
    {"elu", element_wise<&model::EluFunction::alpha>},
    {"selu", element_wise<>},
    {"gelu", gelu},
    {"silu", silu},
    {"mish", mish},
    {"hard_swish", element_wise<>},
    {"hard_sigmoid",
     element_wise<&model::HardSigmoidFunction::slope, &model::HardSigmoidFunction::offset>},
    {"hard_tanh", hard_tanh},
    {"softplus", element_wise<>},
    {"softsign", element_wise<>},
    {"sigmoid", element_wise<>},
    {"softmax", softmax},
    {"tanh", element_wise<>},
    {"rescaling", rescaling},
    {"fake_quantize", fake_quantize},
    {"dropout", dropout},
    {"add", combined_inputs<kAdd>},
    {"multiply", combined_inputs<kMul>},
    {"flatten", reshaped_input},
    {"reshape", reshaped_input},
    {"permute", permuted},
    {"concatenate", concatenated},
    {"zero_padding2d", zero_padding},
};

}  // namespace

std::span<const LayerRow> array_layers() { return kArrayLayers; }

}  // namespace lockstep::inline v0::onnx
