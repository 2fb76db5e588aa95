// Weights of 8 and 16 bits, and export and import of QDQ graphs.
#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/export/int8_layers.h"
#include "lockstep/onnx/import.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Network;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// ---- quantize_channels

TEST(QuantizeChannels, RoundsEachChannelToItsOwnIntegers) {
  std::vector<float> kernel = {127, 0.4f, -63.5f, 2.54f, 0.013f, -0.045f};
  const std::vector<float> scales = quantize_channels(kernel, 2);
  EXPECT_THAT(scales, Pointwise(FloatNear(1e-6f), {1.0f, 0.02f}));
  EXPECT_THAT(kernel, Pointwise(FloatNear(1e-6f), {127.0f, 0.0f, -64.0f, 2.54f, 0.02f, -0.04f}));
}

TEST(QuantizeChannels, HasFewerIntegersForFewerBits) {
  std::vector<float> kernel = {63, 0.4f, -31.6f, 1.26f, 0.013f, -0.045f};
  const std::vector<float> scales = quantize_channels(kernel, 2, {}, 1, 7);
  EXPECT_THAT(scales, Pointwise(FloatNear(1e-6f), {1.0f, 0.02f}));
  EXPECT_THAT(kernel, Pointwise(FloatNear(1e-6f), {63.0f, 0.0f, -32.0f, 1.26f, 0.02f, -0.04f}));
}

TEST(QuantizeChannels, RoundsBiasesToProductsOfTheScales) {
  std::vector<float> kernel = {127, 1.27f};
  std::vector<float> bias = {0.3f, 0.0074f};
  quantize_channels(kernel, 2, bias, 0.5f);
  EXPECT_THAT(bias, Pointwise(FloatNear(1e-6f), {0.5f, 0.005f}));
}

TEST(QuantizeChannels, HasAScaleForChannelsOfZeros) {
  std::vector<float> kernel(4, 0.0f);
  std::vector<float> bias = {0, 3};
  const std::vector<float> scales = quantize_channels(kernel, 2, bias, 0.25f);
  EXPECT_EQ(scales[0], 1);
  EXPECT_THAT(kernel, Each(0.0f));
  EXPECT_THAT(bias, Pointwise(FloatNear(1e-5f), {0.0f, 3.0f}));
  EXPECT_LT(bias[1] / (scales[1] * 0.25f), 2147483647.0f) << "fits into int32";
}

TEST(QuantizeChannels, WidensScalesForBiasesOfTinyKernels) {
  std::vector<float> kernel = {1e-30f};
  std::vector<float> bias = {100};
  const std::vector<float> scales = quantize_channels(kernel, 1, bias, 1e-3f);
  EXPECT_LT(bias[0] / (scales[0] * 1e-3f), 2147483647.0f);
  EXPECT_NEAR(bias[0], 100, 1e-4);
}

TEST(QuantizeChannels, IsIdempotent) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> kernel(8 * 40);
  for (float& weight : kernel) weight = normal(random);
  quantize_channels(kernel, 8);
  const std::vector<float> once = kernel;
  quantize_channels(kernel, 8);
  EXPECT_THAT(kernel, Pointwise(FloatNear(1e-6f), once));
}

// ---- Export and import

constexpr const char* kQuantized = R"({"input": [6, 6, 3], "layers": [
    {"type": "fake_quantize", "scale": 0.02, "zero_point": 120, "dtype": "uint8", "name": "q0"},
    {"type": "conv2d", "filters": 5, "kernel": 3, "use_bias": false, "name": "c"},
    {"type": "batch_normalization", "activation": "relu"},
    {"type": "fake_quantize", "scale": 0.015625, "dtype": "uint8", "name": "q1"},
    {"type": "depthwise_conv2d", "kernel": 3, "padding": "same", "name": "d", "activation": "relu"},
    {"type": "fake_quantize", "scale": 0.03125, "zero_point": -128, "name": "q2"},
    {"type": "dense", "units": 7, "name": "p"},
    {"type": "flatten", "name": "f"},
    {"type": "fake_quantize", "scale": 0.05, "name": "q3"},
    {"type": "dense", "units": 4, "name": "out"}]})";

/// A network with random numbers as parameters, and variances near 1.
struct RandomNetwork {
  explicit RandomNetwork(const std::string& description)
      : network(model::network_from_json(description, "net.json")),
        parameters(network.parameters().flat_size()),
        buffers(network.buffers().flat_size(), 0.75f) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.3f);
    for (const model::ParameterInfo& entry : network.parameters().entries())
      for (float& value : model::ParameterTable::slice(std::span(parameters), entry))
        value = entry.name.ends_with("gamma") ? 1 + normal(random) : normal(random);
  }

  Model exported(const ExportOptions& options) const {
    return export_network(network, {.parameters = parameters, .buffers = buffers}, options);
  }

  Network network;
  std::vector<float> parameters;
  std::vector<float> buffers;
};

std::vector<float> predictions_of(const Network& network, std::span<const float> parameters,
                                  std::span<const float> buffers) {
  device::HostAllocator allocator;
  model::CompiledModel compiled(std::make_shared<const Network>(network), device::Device{},
                                allocator);
  std::ranges::copy(parameters, compiled.parameters().begin());
  std::ranges::copy(buffers, compiled.buffers().begin());
  compiled.parameters_changed();
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  constexpr std::int64_t kSamples = 4;
  std::vector<float> features(
      static_cast<std::size_t>(kSamples * model::element_count(network.input_shape())));
  for (float& feature : features) feature = normal(random);
  const model::InputView input{.features = features};
  const auto outputs = compiled.predict_outputs({.samples = kSamples, .inputs = {&input, 1}});
  return {outputs.front().begin(), outputs.front().end()};
}

std::vector<float> predictions_of(const ImportedNetwork& imported) {
  return predictions_of(imported.network, imported.parameters, imported.buffers);
}

const Tensor* find_constant(const Model& model, const std::string& name) {
  const auto found = std::ranges::find(model.graph.initializers, name, &Tensor::name);
  return found == model.graph.initializers.end() ? nullptr : &*found;
}

std::string operators_of(const Model& model) {
  std::string types;
  for (const Node& node : model.graph.nodes) types += node.type + " ";
  return types;
}

const ExportOptions kStoredInt8{.int8_layers = {"c", "d", "p", "out"}};

TEST(ExportInt8, StoresKernelsAndBiasesAsIntegers) {
  const RandomNetwork random(kQuantized);
  const Model model = random.exported(kStoredInt8);
  EXPECT_EQ(operators_of(model),
            "QuantizeLinear DequantizeLinear DequantizeLinear DequantizeLinear Conv Relu "
            "QuantizeLinear DequantizeLinear DequantizeLinear DequantizeLinear Conv Relu "
            "QuantizeLinear DequantizeLinear Transpose DequantizeLinear MatMul Add Flatten "
            "QuantizeLinear DequantizeLinear DequantizeLinear DequantizeLinear Gemm ");
  const Tensor* const kernel = find_constant(model, "c/kernel/int8");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->type, TensorType::int8);
  EXPECT_EQ(kernel->shape, (std::vector<std::int64_t>{5, 3, 3, 3}));
  for (std::size_t channel = 0; channel < 5; ++channel) {
    int largest = 0;
    for (const char byte : kernel->bytes.substr(channel * 27, 27))
      largest = std::max(largest, std::abs(static_cast<int>(static_cast<signed char>(byte))));
    EXPECT_EQ(largest, 127);
  }
  const Tensor* const bias = find_constant(model, "c/bias/int32");
  ASSERT_NE(bias, nullptr);
  EXPECT_EQ(bias->type, TensorType::int32);
  const Tensor* const scale = find_constant(model, "out/kernel/scale");
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(scale->shape, std::vector<std::int64_t>{4});
  EXPECT_EQ(find_constant(model, "p/bias")->type, TensorType::float32) << "of a MatMul";
  EXPECT_EQ(find_constant(model, "c/kernel"), nullptr);
  const Tensor* const zero_point = find_constant(model, "q2/zero_point");
  ASSERT_NE(zero_point, nullptr);
  EXPECT_EQ(zero_point->type, TensorType::int8);
  EXPECT_EQ(zero_point->bytes, std::string(1, static_cast<char>(-128)));
}

TEST(ExportInt8, IsImportedAsTheRoundedNetwork) {
  const RandomNetwork random(kQuantized);
  const ImportedNetwork imported = import_network(random.exported(kStoredInt8), "net.onnx");
  const ImportedNetwork floats = import_network(random.exported({}), "net.onnx");
  std::vector<float> rounded = floats.parameters;
  std::size_t quantized = 0;
  for (const model::Node& node : imported.network.nodes())
    quantized += node.layer->kind() == "fake_quantize" ? 1 : 0;
  EXPECT_EQ(quantized, 4u);
  EXPECT_EQ(imported.network.summary(), floats.network.summary());
  const auto array = [&](const char* name) {
    const model::ParameterInfo* const entry = floats.network.parameters().find(name);
    return model::ParameterTable::slice(std::span(rounded), *entry);
  };
  for (std::size_t i = 0; i < floats.network.nodes().size(); ++i)
    if (const std::string& name = floats.network.nodes()[i].name;
        kStoredInt8.int8_layers.contains(name) && name != "out")
      round_int8_layer(floats.network, static_cast<model::NodeId>(i), rounded);
  // Its input is rounded before it is flattened.
  quantize_channels(array("out/kernel"), 4, array("out/bias"), 0.05f);
  EXPECT_NE(rounded, floats.parameters);
  EXPECT_THAT(imported.parameters, Pointwise(FloatNear(1e-6f), rounded));
}

TEST(ExportQdq, ComputesTheSameAfterImport) {
  const RandomNetwork random(kQuantized);
  // Equal operators, so that no value is rounded differently.
  const ImportedNetwork floats = import_network(random.exported({.fold = false}), "net.onnx");
  EXPECT_THAT(predictions_of(floats),
              Pointwise(FloatNear(1e-3f),
                        predictions_of(random.network, random.parameters, random.buffers)));
}

std::string int8_refusal(const std::string& description, const ExportOptions& options,
                         float parameter = 0.5f) {
  RandomNetwork random(description);
  std::ranges::fill(random.parameters, parameter);
  try {
    random.exported(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

TEST(ExportInt8, RejectsLayersWithoutAFormOfIntegers) {
  const std::string expected =
      "expected a layer of convolutions or a dense one after a fake_quantize, to store its kernel "
      "as int8";
  const char* const plain = R"({"input": [4], "layers": [
      {"type": "dense", "units": 4, "name": "d"}, {"type": "relu", "name": "r"}]})";
  EXPECT_THAT(int8_refusal(plain, {.int8_layers = {"d"}}),
              HasSubstr("[d] " + expected + ", got an input that is no fake_quantize"));
  EXPECT_THAT(int8_refusal(plain, {.int8_layers = {"r"}}),
              HasSubstr("[r] " + expected + ", got a type without an integer form"));
  EXPECT_THAT(int8_refusal(plain, {.int8_layers = {"x"}}), HasSubstr("[x] " + expected));
  EXPECT_THAT(int8_refusal(R"({"input": [4], "layers": [{"type": "fake_quantize", "scale": 1},
                               {"type": "dense", "units": 4, "name": "d"}]})",
                           {.int8_layers = {"d"}}, std::numeric_limits<float>::quiet_NaN()),
              HasSubstr("/kernel] expected finite numbers to store as int8"));
}

// ---- float16

constexpr const char* kWide = R"({"input": [20], "layers": [
    {"type": "dense", "units": 16, "name": "d"}, {"type": "dense", "units": 3, "name": "e"}]})";

TEST(ExportFloat16, StoresLargeArraysInHalfTheBytes) {
  const RandomNetwork random(kWide);
  const Model model = random.exported({.weights = WeightStorage::float16});
  EXPECT_EQ(operators_of(model), "Cast Gemm Gemm ");
  const Tensor* const kernel = find_constant(model, "d/kernel/float16");
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->type, TensorType::float16);
  EXPECT_EQ(kernel->bytes.size(), 2u * 16 * 20);
  EXPECT_EQ(model.graph.nodes[1].inputs[1], "d/kernel");
  EXPECT_EQ(find_constant(model, "e/kernel")->type, TensorType::float32) << "of 48 elements";
  const ImportedNetwork imported = import_network(model, "net.onnx");
  EXPECT_THAT(predictions_of(imported),
              Pointwise(FloatNear(0.01f),
                        predictions_of(random.network, random.parameters, random.buffers)));
}

TEST(ExportFloat16, RejectsNumbersThatFloat16CannotHold) {
  EXPECT_EQ(int8_refusal(kWide, {.weights = WeightStorage::float16}, 65519.0f), "no error");
  EXPECT_EQ(int8_refusal(kWide, {.weights = WeightStorage::float16}, -70000.0f),
            "[d/kernel] expected weights that float16 can hold, at most 65504, got -70000");
}

// ---- Graphs of other programs

template <typename Element>
Tensor initializer_of(std::string name, TensorType type, std::vector<std::int64_t> shape,
                      const std::vector<Element>& values) {
  Tensor tensor{.name = std::move(name), .type = type, .shape = std::move(shape), .bytes = {}};
  tensor.bytes.assign(reinterpret_cast<const char*>(values.data()),
                      values.size() * sizeof(Element));
  return tensor;
}

Node operator_of(std::string type, std::vector<std::string> inputs, std::string output) {
  return {.name = output,
          .type = std::move(type),
          .domain = "",
          .inputs = std::move(inputs),
          .outputs = {output},
          .attributes = {}};
}

/// x, quantized and dequantized, times weights that are quantized in the file, or in the graph.
Model quantized_product() {
  Model model;
  model.graph.inputs = {{.name = "x", .shape = {std::string("N"), std::int64_t{2}}}};
  model.graph.outputs = {{.name = "y", .shape = {}}};
  model.graph.initializers = {
      initializer_of<float>("s", TensorType::float32, {}, {0.5f}),
      initializer_of<std::uint8_t>("z", TensorType::uint8, {}, {4}),
      initializer_of<std::int8_t>("w", TensorType::int8, {2, 2}, {1, -2, 3, 4}),
      initializer_of<float>("ws", TensorType::float32, {2}, {0.5f, 2}),
      initializer_of<std::int8_t>("wz", TensorType::int8, {2}, {0, 1}),
      initializer_of<std::int32_t>("b", TensorType::int32, {2}, {-3, 8}),
      initializer_of<float>("bs", TensorType::float32, {2}, {0.25f, 1})};
  Node weights =
      operator_of("DequantizeLinear", {"w", "ws", "wz"}, "fc.weight_DequantizeLinear_Output");
  weights.attributes = {{"axis", std::int64_t{1}}};
  Node bias = operator_of("DequantizeLinear", {"b", "bs"}, "bd");
  bias.attributes = {{"axis", std::int64_t{0}}};
  model.graph.nodes = {operator_of("QuantizeLinear", {"x", "s", "z"}, "xq"),
                       operator_of("DequantizeLinear", {"xq", "s", "z"}, "xd"),
                       weights,
                       operator_of("MatMul", {"xd", "fc.weight_DequantizeLinear_Output"}, "p"),
                       bias,
                       operator_of("Add", {"p", "bd"}, "y")};
  return model;
}

TEST(ImportQdq, ReadsActivationsWeightsAndBiases) {
  const ImportedNetwork imported = import_network(quantized_product(), "net.onnx");
  ASSERT_EQ(imported.network.nodes().size(), 2u);
  const auto* const range =
      dynamic_cast<const model::FakeQuantize*>(imported.network.nodes()[0].layer.get());
  ASSERT_NE(range, nullptr);
  EXPECT_EQ(range->function().scale, 0.5f);
  EXPECT_EQ(range->function().zero_point, 4);
  EXPECT_EQ(range->function().dtype, model::Int8Type::uint8);
  EXPECT_EQ(imported.network.nodes()[1].name, "fc");
  const auto array = [&](const char* name) {
    const auto values = model::ParameterTable::slice(std::span(imported.parameters),
                                                     *imported.network.parameters().find(name));
    return std::vector<float>(values.begin(), values.end());
  };
  EXPECT_THAT(array("fc/kernel"), ElementsAre(0.5f, 1.5f, -6, 6)) << "[units, inputs]";
  EXPECT_THAT(array("fc/bias"), ElementsAre(-0.75f, 8));
}

TEST(ImportQdq, ReadsWeightsThatTheGraphQuantizes) {
  Model model = quantized_product();
  model.graph.initializers[2] =
      initializer_of<float>("wf", TensorType::float32, {2, 2}, {0.3f, -2.2f, 900, 1});
  model.graph.initializers.push_back(initializer_of<std::int8_t>("z8", TensorType::int8, {}, {0}));
  model.graph.nodes[2] =
      operator_of("DequantizeLinear", {"w", "s", "z8"}, "fc.weight_DequantizeLinear_Output");
  model.graph.nodes.insert(model.graph.nodes.begin(),
                           operator_of("QuantizeLinear", {"wf", "s", "z8"}, "w"));
  const ImportedNetwork imported = import_network(model, "net.onnx");
  EXPECT_THAT(model::ParameterTable::slice(std::span(imported.parameters),
                                           *imported.network.parameters().find("fc/kernel")),
              ElementsAre(0.5f, 63.5f, -2, 1));
}

std::string import_refusal(const Model& model) {
  try {
    import_network(model, "net.onnx");
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), ErrorCategory::input);
    return error.what();
  }
  return "no error";
}

TEST(ImportQdq, RejectsIntegersThatOtherOperatorsRead) {
  Model model = quantized_product();
  model.graph.nodes[1] = operator_of("Relu", {"xq"}, "xd");
  EXPECT_EQ(import_refusal(model),
            "[net.onnx] expected a DequantizeLinear after it, and nothing else that reads its "
            "integers; QuantizeLinear (node \"xq\"): \"xq\" has another reader");
  model = quantized_product();
  model.graph.outputs.push_back({.name = "xq", .type = TensorType::uint8, .shape = {}});
  EXPECT_THAT(import_refusal(model), HasSubstr("QuantizeLinear (node \"xq\")"));
}

TEST(ImportQdq, RejectsScalesThatDiffer) {
  Model model = quantized_product();
  model.graph.initializers.push_back(initializer_of<float>("s2", TensorType::float32, {}, {0.75f}));
  model.graph.nodes[1].inputs[1] = "s2";
  EXPECT_THAT(import_refusal(model),
              HasSubstr("expected the scale and the zero point of the QuantizeLinear before it; "
                        "DequantizeLinear (node \"xd\"): got 0.75 and 4 instead of 0.5 and 4"));
}

TEST(ImportQdq, RejectsScalesOfChannelsAndOtherTypesForActivations) {
  Model model = quantized_product();
  model.graph.nodes[0].inputs[1] = "ws";
  EXPECT_THAT(import_refusal(model), HasSubstr("expected one constant scale and zero point"));
  model = quantized_product();
  model.graph.initializers[1] = initializer_of<std::int32_t>("z", TensorType::int32, {}, {4});
  EXPECT_THAT(import_refusal(model), HasSubstr("expected integers of the type int8 or uint8"));
  model = quantized_product();
  model.graph.initializers[0] = initializer_of<float>("s", TensorType::float32, {}, {0.0f});
  EXPECT_THAT(import_refusal(model), HasSubstr("expected a scale above 0, got 0"));
}

TEST(ImportQdq, RejectsWeightsWhoseScalesDoNotFit) {
  Model model = quantized_product();
  model.graph.initializers[3] = initializer_of<float>("ws", TensorType::float32, {3}, {1, 2, 3});
  EXPECT_THAT(import_refusal(model),
              HasSubstr("DequantizeLinear (node \"fc.weight_DequantizeLinear_Output\")"));
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
