// Which values are rounded, the outputs of a quantized network, and which layers remain in float32.
// export_test.py compares the files with onnxruntime.
#include "lockstep/onnx/export/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/export/quantized_network.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

/// The network of a description, with random weights.
model::FoldedNetwork random_network(const std::string& description) {
  model::Network network = model::network_from_json(description, "net.json");
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.3f);
  std::vector<float> parameters(network.parameters().flat_size());
  for (const model::ParameterInfo& entry : network.parameters().entries())
    for (float& value : model::ParameterTable::slice(std::span(parameters), entry))
      value = normal(random);
  const std::vector<float> buffers(network.buffers().flat_size(), 1.0f);
  return model::fold_normalizations(network, parameters, buffers);
}

/// Convolutions with an addition around one of them.
model::FoldedNetwork residual_network() {
  return random_network(R"({"input": [8, 8, 2], "layers": [
      {"type": "conv2d", "name": "c1", "filters": 4, "kernel": 3, "padding": "same"},
      {"type": "batch_normalization", "name": "n1"},
      {"type": "relu", "name": "r1"},
      {"type": "max_pool2d", "name": "p", "pool": 2},
      {"type": "conv2d", "name": "c2", "filters": 4, "kernel": 3, "padding": "same"},
      {"type": "add", "name": "a", "inputs": ["p", "c2"]},
      {"type": "relu", "name": "r2"},
      {"type": "flatten", "name": "f"},
      {"type": "dense", "name": "d", "units": 3}]})");
}

/// Dense layers d0, d1, … one after another.
model::FoldedNetwork chain_of(int layers) {
  std::vector<std::string> dense;
  for (int i = 0; i < layers; ++i)
    dense.push_back(fmt::format(R"({{"type": "dense", "name": "d{}", "units": 6}})", i));
  return random_network(fmt::format(R"({{"input": [6], "layers": [{}]}})", fmt::join(dense, ", ")));
}

NodeId node_called(const model::Network& network, const std::string& name) {
  const auto found = std::ranges::find(network.nodes(), name, &model::Node::name);
  if (found == network.nodes().end()) throw std::out_of_range(name);
  return static_cast<NodeId>(found - network.nodes().begin());
}

/// "layer(input, …) …" of each layer of the network with `int8` layers.
std::string rounded_with(const model::FoldedNetwork& original,
                         const std::vector<std::string>& int8) {
  std::set<NodeId> layers;
  for (const std::string& name : int8) layers.insert(node_called(original.network, name));
  std::map<NodeId, ActivationRange> ranges;
  for (NodeId value = model::kInput; value <= original.network.last(); ++value)
    ranges[value] = {.low = 0, .high = 1};
  const model::Network network = quantized_network(original, layers, ranges).network;
  std::vector<std::string> texts;
  for (const model::Node& node : network.nodes()) {
    std::vector<std::string> inputs;
    for (const NodeId input : node.inputs)
      inputs.push_back(model::is_input(input)
                           ? network.inputs()[model::input_index(input)].name
                           : network.nodes()[static_cast<std::size_t>(input)].name);
    texts.push_back(fmt::format("{}({})", node.name, fmt::join(inputs, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

data::Dataset samples_for(const model::FoldedNetwork& original, std::int64_t count = 40) {
  return data::Dataset::synthetic(original.network.input_shape(), 3, count);
}

double nothing(const model::FoldedNetwork& /*network*/) { return 0; }

template <typename Function>
std::string quantize_error(ErrorCategory category, Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.category(), category);
    return error.what();
  }
  return "no error";
}

TEST(QuantizedNetwork, RoundsAroundConvolutionsAndAdditions) {
  const model::FoldedNetwork original = residual_network();
  EXPECT_EQ(rounded_with(original, {"c1", "c2", "d"}),
            "features_uint8(features) c1(features_uint8) r1(c1) r1_uint8(r1) p(r1_uint8) "
            "p_uint8(p) c2(p_uint8) c2_uint8(c2) a(p_uint8, c2_uint8) r2(a) r2_uint8(r2) "
            "f(r2_uint8) f_uint8(f) d(f_uint8)");
}

TEST(QuantizedNetwork, RoundsOnlyForTheLayersThatAreInt8) {
  const model::FoldedNetwork original = residual_network();
  EXPECT_EQ(rounded_with(original, {"d"}),
            "c1(features) r1(c1) p(r1) c2(p) a(p, c2) r2(a) f(r2) f_uint8(f) d(f_uint8)");
  EXPECT_EQ(rounded_with(original, {"c2"}),
            "c1(features) r1(c1) p(r1) p_uint8(p) c2(p_uint8) c2_uint8(c2) a(p, c2_uint8) r2(a) "
            "f(r2) d(f)");
  EXPECT_EQ(rounded_with(original, {}),
            "c1(features) r1(c1) p(r1) c2(p) a(p, c2) r2(a) f(r2) d(f)");
}

TEST(QuantizedNetwork, PropagatesRangesThroughLayersThatKeepValues) {
  const model::FoldedNetwork original = residual_network();
  const model::Network& network = original.network;
  const auto all = layers_for_int8(network);
  const RoundingPlan plan(network, {all.begin(), all.end()});
  EXPECT_EQ(plan.range_of(node_called(network, "p")), node_called(network, "r1"));
  EXPECT_EQ(plan.range_of(node_called(network, "f")), node_called(network, "r2"));
  EXPECT_EQ(plan.range_of(node_called(network, "c2")), node_called(network, "c2"));
  const RoundingPlan last(network, {node_called(network, "d")});
  EXPECT_EQ(last.range_of(node_called(network, "f")), node_called(network, "f"));
}

TEST(QuantizedNetwork, DoesNotRoundOutputs) {
  const model::FoldedNetwork original = random_network(R"({"input": [4, 4, 1], "layers": [
      {"type": "conv2d", "name": "c", "filters": 2, "kernel": 1},
      {"type": "flatten", "name": "f"}, {"type": "dense", "name": "d", "units": 3}],
      "outputs": {"image": "c", "kind": "d"}})");
  EXPECT_EQ(rounded_with(original, {"c", "d"}),
            "features_uint8(features) c(features_uint8) f(c) f_uint8(f) d(f_uint8)");
}

TEST(QuantizedNetwork, FindsLayersThatAnOutputDependsOn) {
  const model::FoldedNetwork original = random_network(R"({"input": [4], "layers": [
      {"type": "dense", "name": "y", "units": 3}, {"type": "dense", "name": "unread", "units": 3}],
      "outputs": {"kind": "y"}})");
  EXPECT_THAT(layers_for_int8(original.network), ElementsAre(0));
}

TEST(Quantize, KeepsSignalsFarAboveTheNoise) {
  const model::FoldedNetwork original = residual_network();
  for (const auto calibration :
       {Calibration::min_max, Calibration::percentile, Calibration::entropy}) {
    const QuantizedModel model =
        quantize(original, samples_for(original), nothing, {.calibration = calibration});
    EXPECT_THAT(model.int8_layers, ElementsAre("c1", "c2", "d"));
    EXPECT_EQ(model.samples, 40);
    ASSERT_EQ(model.layers.size(), 3u);
    EXPECT_EQ(model.layers[0].type, "conv2d");
    for (const QuantizedLayer& layer : model.layers) {
      EXPECT_TRUE(layer.is_int8);
      EXPECT_THAT(layer.decibels, Optional(::testing::Gt(15.0))) << layer.name;
      EXPECT_LT(layer.input.low, layer.input.high);
    }
  }
}

TEST(Quantize, IsExportable) {
  const model::FoldedNetwork original = residual_network();
  const QuantizedModel model = quantize(original, samples_for(original), nothing);
  const Model file =
      export_network(model.network.network,
                     {.parameters = model.network.parameters, .buffers = model.network.buffers},
                     {.int8_layers = model.int8_layers});
  EXPECT_EQ(std::ranges::count(file.graph.nodes, "QuantizeLinear", &Node::type), 6);
  EXPECT_EQ(std::ranges::count(file.graph.initializers, TensorType::int8, &Tensor::type), 6)
      << "three kernels and their zero points";
}

TEST(Quantize, UsesTheRequestedWeightBits) {
  const model::FoldedNetwork original = residual_network();
  for (const auto& [bits, most] : {std::pair(7, 63), std::pair(8, 127)}) {
    const QuantizedModel model =
        quantize(original, samples_for(original), nothing, {.weight_bits = bits});
    const Model file =
        export_network(model.network.network,
                       {.parameters = model.network.parameters, .buffers = model.network.buffers},
                       {.int8_layers = model.int8_layers, .weight_bits = bits});
    int largest = 0;
    for (const Tensor& tensor : file.graph.initializers)
      if (tensor.type == TensorType::int8)
        for (const char byte : tensor.bytes)
          largest = std::max(largest, std::abs(static_cast<int>(static_cast<signed char>(byte))));
    EXPECT_EQ(largest, most);
  }
  for (const int bits : {6, 9})
    EXPECT_EQ(
        quantize_error(
            ErrorCategory::input,
            [&] { quantize(original, samples_for(original), nothing, {.weight_bits = bits}); }),
        fmt::format("[weight-bits] expected 7 or 8, got {}", bits));
}

TEST(Quantize, IsDeterministic) {
  const model::FoldedNetwork original = residual_network();
  const QuantizedModel first = quantize(original, samples_for(original), nothing);
  const QuantizedModel second = quantize(original, samples_for(original), nothing);
  EXPECT_EQ(first.network.parameters, second.network.parameters);
  for (std::size_t i = 0; i < first.layers.size(); ++i) {
    EXPECT_EQ(first.layers[i].input, second.layers[i].input);
    EXPECT_EQ(first.layers[i].decibels, second.layers[i].decibels);
  }
}

TEST(Quantize, LimitsTheCalibrationSamples) {
  const model::FoldedNetwork original = chain_of(1);
  EXPECT_EQ(quantize(original, samples_for(original, 100), nothing, {.samples = 33}).samples, 33);
}

TEST(Quantize, KeepsTheNoisiestLayerInFloat) {
  const model::FoldedNetwork original = residual_network();
  int calls = 0;
  const auto first_loses = [&](const model::FoldedNetwork& /*network*/) {
    return ++calls == 1 ? 1.0 : 0.25;
  };
  const QuantizedModel model = quantize(original, samples_for(original), first_loses);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(model.drop, 0.25);
  EXPECT_EQ(model.call, 1u);
  EXPECT_EQ(model.int8_layers.size(), 2u);
  const auto noisiest = std::ranges::min_element(
      model.layers, {}, [](const QuantizedLayer& layer) { return layer.decibels.value(); });
  for (const QuantizedLayer& layer : model.layers) {
    EXPECT_EQ(layer.is_int8, layer.name != noisiest->name);
    EXPECT_EQ(layer.kept_by, layer.is_int8 ? "" : "max-drop");
  }
}

TEST(Quantize, KeepsTheFewestLayersInFloat) {
  const model::FoldedNetwork original = chain_of(6);
  for (int allowed = 1; allowed <= 6; ++allowed) {
    int calls = 0;
    const auto by_layers = [&](const model::FoldedNetwork& network) {
      ++calls;
      const auto is_rounding = [](const model::Node& node) {
        return node.name.ends_with("_uint8");
      };
      return std::ranges::count_if(network.network.nodes(), is_rounding) > allowed - 1 ? 2.0 : 0.5;
    };
    const auto run = [&] { return quantize(original, samples_for(original), by_layers); };
    // Each dense layer has a rounding before it, the first one that of the input.
    if (allowed == 1) {
      EXPECT_EQ(quantize_error(ErrorCategory::input, run),
                "[max-drop] expected a network that loses at most 0.5 points, got 2.00 with one "
                "layer in int8");
    } else {
      EXPECT_EQ(run().int8_layers.size(), static_cast<std::size_t>(allowed - 1));
    }
    EXPECT_LE(calls, 6);
  }
}

TEST(Quantize, KeepsLayersInFloatByTheirNames) {
  const model::FoldedNetwork original = residual_network();
  const QuantizedModel model =
      quantize(original, samples_for(original), nothing, {.keep_float = {"c*"}});
  EXPECT_THAT(model.int8_layers, ElementsAre("d"));
  EXPECT_EQ(model.layers[0].kept_by, "keep-float");
  EXPECT_EQ(model.layers[0].decibels, std::nullopt);
  const auto keep = [&](const char* pattern) {
    return quantize_error(ErrorCategory::input, [&] {
      quantize(original, samples_for(original), nothing, {.keep_float = {pattern}});
    });
  };
  EXPECT_EQ(keep("nothing*"),
            "[keep-float] expected a pattern of names of layers that int8 is for, which are c1, "
            "c2, d, got \"nothing*\"");
  EXPECT_THAT(keep("*"), HasSubstr("expected a convolution or a dense layer to compute with int8"));
}

TEST(Quantize, RejectsANetworkWithoutSuchLayers) {
  const model::FoldedNetwork original =
      random_network(R"({"input": [6], "layers": [{"type": "relu"}]})");
  EXPECT_THAT(
      quantize_error(ErrorCategory::input,
                     [&] { quantize(original, samples_for(original), nothing); }),
      HasSubstr("expected a convolution or a dense layer to compute with int8; it has none"));
}

TEST(Quantize, RejectsTooFewSamples) {
  const model::FoldedNetwork original = chain_of(1);
  EXPECT_THAT(quantize_error(ErrorCategory::data,
                             [&] { quantize(original, samples_for(original, 15), nothing); }),
              HasSubstr("expected at least 16 samples to calibrate with, got 15"));
}

TEST(Quantize, RejectsValuesThatAreNotFinite) {
  model::FoldedNetwork original = chain_of(2);
  original.parameters[original.network.parameters().find("d0/bias")->offset] =
      std::numeric_limits<float>::infinity();
  EXPECT_EQ(quantize_error(ErrorCategory::data,
                           [&] { quantize(original, samples_for(original), nothing); }),
            "[d0] expected finite values for the samples of the calibration, got NaN or infinity");
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
