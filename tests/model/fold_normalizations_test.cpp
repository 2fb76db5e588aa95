#include "lockstep/model/network/fold_normalizations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

/// The predictions of a network with random weights and statistics, original and folded.
void expect_the_same_predictions(Trial& before, std::size_t folded_layers) {
  const Network& network = before.network();
  before.model().parameters_changed();
  const FoldedNetwork folded =
      fold_normalizations(network, before.model().parameters(), before.model().buffers());
  EXPECT_EQ(folded.network.nodes().size() + folded_layers, network.nodes().size());
  Trial after(folded.network, 3);
  std::ranges::copy(folded.parameters, after.model().parameters().begin());
  std::ranges::copy(folded.buffers, after.model().buffers().begin());
  after.model().parameters_changed();
  after.features() = before.features();
  const std::vector<float> expected = before.predict();
  const float largest = std::ranges::max(expected, {}, [](float x) { return std::abs(x); });
  EXPECT_THAT(after.predict(),
              Pointwise(FloatNear(1e-5f * std::max(1.0f, std::abs(largest))), expected));
}

void expect_the_same_predictions(const Network& network, std::size_t folded_layers) {
  Trial before(network, 3);
  expect_the_same_predictions(before, folded_layers);
}

Network described_network(const std::string& layers) {
  return network_from_json(R"({"input": [9, 9, 4], "layers": [)" + layers + "]}", "net.json");
}

TEST(FoldNormalizations, PredictsTheSameForEveryKindOfLayer) {
  expect_the_same_predictions(described_network(R"(
      {"type": "conv2d", "filters": 6, "kernel": [3, 2], "groups": 2, "use_bias": false},
      {"type": "batch_normalization", "epsilon": 0.25, "activation": "relu"},
      {"type": "conv2d", "filters": 4, "kernel": 1},
      {"type": "batch_normalization", "activation": "tanh"},
      {"type": "depthwise_conv2d", "kernel": 3, "depth_multiplier": 2, "padding": "same"},
      {"type": "batch_normalization"},
      {"type": "conv2d_transpose", "filters": 3, "kernel": 2, "strides": 2, "use_bias": false},
      {"type": "batch_normalization", "activation": "tanh"},
      {"type": "reshape", "shape": [56, 12]},
      {"type": "conv1d", "filters": 5, "kernel": 3, "use_bias": false},
      {"type": "batch_normalization", "activation": "tanh"},
      {"type": "dense", "units": 6},
      {"type": "batch_normalization"},
      {"type": "flatten"},
      {"type": "dense", "units": 7, "use_bias": false},
      {"type": "batch_normalization"})"),
                              7);
}

/// A convolution, a max pooling and a normalization whose gamma of channel 1 is `gamma`.
void expect_folds_through_pooling(const std::string& pooling, float gamma,
                                  std::size_t folded_layers) {
  SCOPED_TRACE(testing::Message() << pooling << " " << gamma);
  const Network network = described_network(
      R"({"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same", "use_bias": false},)" +
      pooling +
      R"(, {"type": "batch_normalization", "name": "n", "epsilon": 0.1},
      {"type": "dense", "units": 3})");
  Trial before(network, 3);
  for (float& value : before.parameter("n/gamma")) value = std::abs(value);
  before.parameter("n/gamma")[1] = gamma;
  expect_the_same_predictions(before, folded_layers);
}

TEST(FoldNormalizations, FoldsThroughMaxPoolingsWhereNoFactorIsNegative) {
  for (const char* const pooling :
       {R"({"type": "max_pool2d"})",
        R"({"type": "max_pool2d", "pool": 3, "strides": 2, "padding": "same"})",
        R"({"type": "global_max_pooling2d"})"})
    for (const auto& [gamma, folded] :
         {std::pair(0.5f, 1u), std::pair(0.0f, 1u), std::pair(-0.5f, 0u)})
      expect_folds_through_pooling(pooling, gamma, folded);
  expect_folds_through_pooling(R"({"type": "average_pool2d"})", 0.5f, 0);
}

TEST(FoldNormalizations, KeepsNormalizationsOfAPoolingWithOtherReaders) {
  Trial before(described_network(R"(
      {"type": "conv2d", "filters": 4, "kernel": 1},
      {"type": "max_pool2d", "name": "p"},
      {"type": "batch_normalization", "name": "n"},
      {"type": "add", "inputs": ["p", "n"]})"),
               3);
  for (float& value : before.parameter("n/gamma")) value = std::abs(value);
  expect_the_same_predictions(before, 0);
}

TEST(FoldNormalizations, KeepsNormalizationsThatShareTheLayerBeforeThem) {
  expect_the_same_predictions(described_network(R"(
      {"type": "batch_normalization"},
      {"type": "conv2d", "filters": 4, "kernel": 1, "name": "c"},
      {"type": "batch_normalization", "name": "n"},
      {"type": "add", "inputs": ["c", "n"]},
      {"type": "batch_normalization"},
      {"type": "flatten"}, {"type": "dense", "units": 3})"),
                              0);
}

TEST(FoldNormalizations, KeepsNamesInputsAndOutputs) {
  const Network network = network_from_json(
      R"({"inputs": {"a": {"shape": [4]}, "b": {"shape": [4]}}, "layers": [
      {"type": "dense", "units": 4, "name": "d", "inputs": ["a"]},
      {"type": "batch_normalization", "name": "n"},
      {"type": "add", "inputs": ["n", "b"], "name": "s"}], "outputs": {"first": "n", "sum": "s"}})",
      "net.json");
  const std::vector<float> parameters(network.parameters().flat_size());
  const std::vector<float> buffers(network.buffers().flat_size(), 1.0f);
  const Network folded = fold_normalizations(network, parameters, buffers).network;
  ASSERT_EQ(folded.nodes().size(), 2u);
  EXPECT_EQ(folded.nodes()[0].name, "d");
  EXPECT_EQ(folded.inputs()[1].name, "b");
  ASSERT_EQ(folded.outputs().size(), 2u);
  EXPECT_EQ(folded.outputs()[0].name, "first");
  EXPECT_EQ(folded.outputs()[0].node, 0);
  EXPECT_EQ(folded.outputs()[1].name, "sum");
  EXPECT_TRUE(folded.buffers().entries().empty());
}

// The output keeps the name of the layer, also if the layer is folded.
TEST(FoldNormalizations, KeepsTheNameOfAFoldedOutput) {
  Network network({4});
  network.add(Dense({.units = 2}));
  network.add(BatchNormalization(), {network.last()}, "end");
  const std::vector<float> parameters(network.parameters().flat_size());
  const std::vector<float> buffers(network.buffers().flat_size(), 1.0f);
  const Network folded = fold_normalizations(network, parameters, buffers).network;
  ASSERT_EQ(folded.outputs().size(), 1u);
  EXPECT_EQ(folded.outputs()[0].name, "end");
}

TEST(FoldNormalizations, FoldsAllNormalizationsOfTheZoo) {
  for (const char* const name : {"fast_cifar", "resnet18", "resnet50", "mobilenet_v2"}) {
    const Network network = zoo::make(name, {32, 32, 3}, 10);
    const std::vector<float> parameters(network.parameters().flat_size());
    const std::vector<float> buffers(network.buffers().flat_size(), 1.0f);
    const FoldedNetwork folded = fold_normalizations(network, parameters, buffers);
    for (const Node& node : folded.network.nodes())
      EXPECT_NE(node.layer->kind(), "batch_normalization") << name << ": " << node.name;
    EXPECT_EQ(folded.network.has_named_outputs(), network.has_named_outputs());
  }
}

}  // namespace
}  // namespace lockstep::inline v0::model
