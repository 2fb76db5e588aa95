// The graphs of exported networks: operators, names, layouts and constants. export_test.py compares
// their outputs.
#include "lockstep/onnx/export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/data/table/schema.h"
#include "lockstep/model/layer/custom_layer.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Network;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Not;

/// A network whose arrays are 1, 2, 3, …; variances are 1.
class Exported {
 public:
  explicit Exported(Network network, const ExportOptions& options = {})
      : network_(std::move(network)),
        parameters_(network_.parameters().flat_size()),
        buffers_(network_.buffers().flat_size()) {
    fill(network_.parameters(), parameters_);
    fill(network_.buffers(), buffers_);
    model = export_network(network_, {.parameters = parameters_, .buffers = buffers_}, options);
  }

  /// "Conv, Relu, …"
  std::string operators() const {
    std::vector<std::string> types;
    for (const Node& node : model.graph.nodes) types.push_back(node.type);
    return fmt::format("{}", fmt::join(types, ", "));
  }
  const Tensor& constant(const std::string& name) const {
    const auto found = std::ranges::find(model.graph.initializers, name, &Tensor::name);
    if (found == model.graph.initializers.end()) throw std::out_of_range(name);
    return *found;
  }
  std::vector<float> floats(const std::string& name) const {
    const std::string& bytes = constant(name).bytes;
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  const Node& node(const std::string& name) const {
    const auto found = std::ranges::find(model.graph.nodes, name, &Node::name);
    if (found == model.graph.nodes.end()) throw std::out_of_range(name);
    return *found;
  }
  template <typename T>
  T attribute(const std::string& node_name, const std::string& name) const {
    for (const Attribute& attribute : node(node_name).attributes)
      if (attribute.name == name) return std::get<T>(attribute.value);
    throw std::out_of_range(name);
  }

  Model model;

 private:
  static void fill(const model::ParameterTable& table, std::vector<float>& flat) {
    for (const model::ParameterInfo& entry : table.entries()) {
      const auto values = model::ParameterTable::slice(std::span<float>(flat), entry);
      if (entry.name.ends_with("variance"))
        std::ranges::fill(values, 1.0f);
      else
        std::iota(values.begin(), values.end(), 1.0f);
    }
  }

  Network network_;
  std::vector<float> parameters_;
  std::vector<float> buffers_;
};

std::string refusal(const std::string& description, const ExportOptions& options = {}) {
  try {
    Exported(model::network_from_json(description, "net.json"), options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

using Ints = std::vector<std::int64_t>;

TEST(ExportOnnx, NamesInputsOutputsAndConstantsAsTheNetwork) {
  const Exported cnn(zoo::cnn({28, 28, 3}, 10));
  EXPECT_EQ(cnn.operators(), "Conv, Relu, MaxPool, Conv, Relu, MaxPool, Flatten, Gemm, Relu, Gemm");
  const Graph& graph = cnn.model.graph;
  EXPECT_EQ(graph.name, "cnn");
  ASSERT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.inputs[0].name, "features");
  EXPECT_EQ(graph.inputs[0].type, TensorType::float32);
  EXPECT_THAT(graph.inputs[0].shape,
              ElementsAre(Extent("batch"), Extent(std::int64_t{3}), Extent(std::int64_t{28}),
                          Extent(std::int64_t{28})));
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.outputs[0].name, "dense_1");
  EXPECT_THAT(graph.outputs[0].shape, ElementsAre(Extent("batch"), Extent(std::int64_t{10})));
  EXPECT_EQ(cnn.constant("conv2d/kernel").shape, Ints({32, 3, 3, 3}));
  EXPECT_EQ(cnn.constant("dense/kernel").shape, Ints({128, 1600}));
  EXPECT_EQ(cnn.attribute<Ints>("max_pool2d", "strides"), Ints({2, 2}));
  EXPECT_EQ(cnn.model.opset, 17);
  EXPECT_EQ(cnn.model.ir_version, 8);
}

TEST(ExportOnnx, MovesTheChannelsOfConstants) {
  Network network({1, 2, 2});
  network.add(model::Conv2D({.filters = 1, .kernel = {1, 2}, .padding = model::Padding::same}));
  network.add(model::Flatten());
  network.add(model::Dense({.units = 1, .use_bias = false}));
  EXPECT_THAT(Exported(std::move(network)).floats("conv2d/kernel"), ElementsAre(1, 3, 2, 4));

  Network flat({1, 2, 2});
  flat.add(model::Flatten());
  flat.add(model::ReLU());
  flat.add(model::Dense({.units = 2, .use_bias = false}));
  const Exported exported(std::move(flat));
  EXPECT_EQ(exported.operators(), "Flatten, Relu, Gemm");
  EXPECT_THAT(exported.floats("dense/kernel"), ElementsAre(1, 3, 2, 4, 5, 7, 6, 8));
}

TEST(ExportOnnx, FoldsBatchNormalization) {
  const char* const description =
      R"({"input": [2, 2, 1], "layers": [
      {"type": "conv2d", "filters": 2, "kernel": 1, "name": "c"},
      {"type": "batch_normalization", "name": "n", "epsilon": 0.21, "activation": "relu"}]})";
  const Exported folded(model::network_from_json(description, "net.json"));
  EXPECT_EQ(folded.operators(), "Conv, Relu");
  // gamma / sqrt(1 + 0.21) is {1, 2} / 1.1; the kernel, the biases, beta and the means are {1, 2}.
  EXPECT_THAT(folded.floats("c/kernel"), ElementsAre(FloatEq(1 / 1.1f), FloatEq(4 / 1.1f)));
  EXPECT_THAT(folded.floats("c/bias"), ElementsAre(FloatEq(1), FloatEq(2)));

  const Exported kept(model::network_from_json(description, "net.json"), {.fold = false});
  EXPECT_EQ(kept.operators(), "Conv, BatchNormalization, Relu");
  EXPECT_THAT(kept.node("n").inputs,
              ElementsAre("c", "n/gamma", "n/beta", "n/moving_mean", "n/moving_variance"));
  EXPECT_EQ(kept.attribute<float>("n", "epsilon"), 0.21f);
}

TEST(ExportOnnx, FoldsOnlyLayersWithOneReader) {
  const Exported read_twice(model::network_from_json(
      R"({"input": [4], "layers": [{"type": "dense", "units": 4, "name": "d"},
      {"type": "batch_normalization", "name": "n"}, {"type": "add", "inputs": ["d", "n"]}]})",
      "net.json"));
  EXPECT_EQ(read_twice.operators(), "Gemm, BatchNormalization, Add");
  const Exported an_output(model::network_from_json(
      R"({"input": [4], "layers": [{"type": "dense", "units": 4, "name": "d"},
      {"type": "batch_normalization", "name": "n"}], "outputs": ["d", "n"]})",
      "net.json"));
  EXPECT_EQ(an_output.operators(), "Gemm, BatchNormalization");
}

TEST(ExportOnnx, TransposesNoImageInside) {
  for (const char* const name : {"resnet18", "resnet50", "mobilenet_v2", "fast_cifar", "mlp"}) {
    const Exported exported(zoo::make(name, {32, 32, 3}, 10));
    EXPECT_THAT(exported.operators(), AllOf(Not(HasSubstr("Transpose")), Not(HasSubstr("Reshape"))))
        << name;
  }
}

TEST(ExportOnnx, KeepsDropoutInANetworkToTrainOn) {
  const Exported kept(model::network_from_json(
                          R"({"input": [4], "layers": [{"type": "dense", "units": 4},
                          {"type": "dropout", "rate": 0.25}, {"type": "dense", "units": 2}]})",
                          "net.json"),
                      {.fold = false});
  EXPECT_EQ(kept.operators(), "Gemm, Dropout, Gemm");
  EXPECT_THAT(kept.floats(kept.model.graph.nodes[1].inputs[1]), ElementsAre(0.25f));
}

TEST(ExportOnnx, OmitsDropoutAndUnusedLayers) {
  const Exported exported(model::network_from_json(
      R"({"input": [4], "layers": [{"type": "dense", "units": 4}, {"type": "dropout"},
      {"type": "dense", "units": 3, "name": "y"}, {"type": "dense", "units": 2}],
      "outputs": {"answer": "y"}})",
      "net.json"));
  EXPECT_EQ(exported.operators(), "Gemm, Gemm");
  EXPECT_EQ(exported.node("y").outputs, std::vector<std::string>{"answer"});
}

TEST(ExportOnnx, WritesOneValueToSeveralOutputs) {
  const Exported exported(model::network_from_json(
      R"({"input": [4], "layers": [{"type": "dense", "units": 4, "name": "h"},
      {"type": "dropout", "name": "d"}, {"type": "dense", "units": 3, "name": "y"}],
      "outputs": [{"hidden": "h"}, {"regularized": "d"}, "y"]})",
      "net.json"));
  EXPECT_EQ(exported.operators(), "Gemm, Gemm, Identity");
  EXPECT_EQ(exported.node("h").outputs, std::vector<std::string>{"hidden"});
  const Node& copy = exported.model.graph.nodes.back();
  EXPECT_EQ(copy.inputs, std::vector<std::string>{"hidden"});
  EXPECT_EQ(copy.outputs, std::vector<std::string>{"regularized"});
}

TEST(ExportOnnx, WritesOutputImagesChannelsFirst) {
  const Exported exported(model::network_from_json(
      R"({"input": [4, 6, 3], "layers": [{"type": "conv2d", "filters": 5, "kernel": 1}]})",
      "net.json"));
  EXPECT_THAT(exported.model.graph.outputs[0].shape,
              ElementsAre(Extent("batch"), Extent(std::int64_t{5}), Extent(std::int64_t{4}),
                          Extent(std::int64_t{6})));
}

TEST(ExportOnnx, OrdersTheGatesOfRecurrentLayers) {
  const auto with = [](const char* type) {
    return Exported(model::network_from_json(
        fmt::format(R"({{"input": [3, 1], "layers": [{{"type": "{}", "units": 1, "name": "r"}}]}})",
                    type),
        "net.json"));
  };
  EXPECT_THAT(with("lstm").floats("r/kernel"), ElementsAre(1, 4, 2, 3));
  EXPECT_THAT(with("lstm").floats("r/bias"), ElementsAre(1, 4, 2, 3, 0, 0, 0, 0));
  const Exported gru = with("gru");
  EXPECT_THAT(gru.floats("r/recurrent_kernel"), ElementsAre(2, 1, 3));
  EXPECT_THAT(gru.floats("r/bias"), ElementsAre(2, 1, 3, 2, 1, 3));
  EXPECT_EQ(gru.attribute<std::int64_t>("r/last", "linear_before_reset"), 1);
  EXPECT_EQ(with("simple_rnn").operators(), "Transpose, RNN, Transpose, Reshape");
}

TEST(ExportOnnx, SharesTheTableOfATiedDense) {
  const std::vector<zoo::DataInput> inputs{
      {.input = {.name = "tokens", .shape = {8}, .type = ElementType::int32}, .categories = 11}};
  const Exported gpt(zoo::gpt(inputs, {.layers = 1, .width = 16}));
  std::int64_t tables = 0;
  for (const Tensor& tensor : gpt.model.graph.initializers)
    if (tensor.shape == Ints{11, 16} || tensor.shape == Ints{16, 11}) ++tables;
  EXPECT_EQ(tables, 1);
  EXPECT_EQ(gpt.model.graph.inputs[0].type, TensorType::int32);
}

std::shared_ptr<const data::TableSchema> table_of(std::vector<data::TableFeature> features) {
  data::TableSchema table;
  table.features = std::move(features);
  return std::make_shared<const data::TableSchema>(std::move(table));
}

data::TableFeature standardized(const std::string& column, double offset, double divisor) {
  return {.columns = {column},
          .scale = data::ColumnScale::standard,
          .offset = offset,
          .divisor = divisor};
}

TEST(ExportOnnx, AddsPreprocessingToTheGraph) {
  const ChannelNormalization normalization{
      .channels = 3, .mean = {0.1f, 0.2f, 0.3f}, .deviation = {1, 2, 3}};
  const Exported images(zoo::linear({4, 4, 3}, 2), {.preprocessing = {.pixels = normalization}});
  EXPECT_EQ(images.operators(), "Cast, Div, Sub, Div, Flatten, Gemm");
  EXPECT_EQ(images.model.graph.inputs[0].type, TensorType::uint8);
  EXPECT_EQ(images.constant("features/mean").shape, Ints({3, 1, 1}));
  EXPECT_THAT(images.floats("features/deviation"), ElementsAre(1, 2, 3));

  const auto columns = table_of({standardized("a", 1, 0), standardized("b", 2, 40)});
  const Exported table(zoo::linear({2}, 2), {.preprocessing = {.table = columns}});
  EXPECT_EQ(table.operators(), "Sub, Div, Gemm");
  EXPECT_THAT(number_columns(*columns), ElementsAre("a", "b"));
  EXPECT_THAT(table.floats("features/offset"), ElementsAre(1, 2));
  EXPECT_THAT(table.floats("features/divisor"),
              ElementsAre(std::numeric_limits<float>::infinity(), 40));
}

// In float32; the remainder of an offset beyond float32 is subtracted, too.
TEST(ExportOnnx, ScalesColumnsAsExactlyAsInFloat64) {
  const double offset = 16777217.3;
  const double divisor = 2e5;
  const Exported table(
      zoo::linear({1}, 2),
      {.preprocessing = {.table = table_of({standardized("a", offset, divisor)})}});
  EXPECT_EQ(table.operators(), "Sub, Sub, Div, Gemm");
  const float first = table.floats("features/offset").front();
  const float second = table.floats("features/offset_remainder").front();
  const float of_float32 = table.floats("features/divisor").front();
  for (const float x : {16777216.0f, 16777218.0f, 16770000.0f, 1.0f, -3e7f, 2e9f}) {
    const double expected = (double{x} - offset) / divisor;
    EXPECT_NEAR((x - first - second) / of_float32, expected, 3e-7 * std::abs(expected)) << x;
  }
}

TEST(ExportOnnx, RejectsPreprocessingOfOtherInputs) {
  const auto message = [](Network network, const ExportOptions& options) -> std::string {
    try {
      Exported(std::move(network), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const ChannelNormalization three{.channels = 3};
  EXPECT_EQ(message(zoo::linear({4}, 2), {.preprocessing = {.pixels = three}}),
            "[preprocessing] expected images of 3 channels to normalize, got the input features "
            "[4]");
  EXPECT_EQ(message(zoo::linear({4, 4, 1}, 2), {.preprocessing = {.pixels = three}}),
            "[preprocessing] expected images of 3 channels to normalize, got the input features "
            "[4, 4, 1]");
  const auto of_feature = [&](const data::TableFeature& feature, std::int64_t width = 1) {
    return message(zoo::linear({width}, 2), {.preprocessing = {.table = table_of({feature})}});
  };
  EXPECT_EQ(of_feature(standardized("a", 1, 1), 4),
            "[preprocessing] expected an input of the 1 features of the table, got the input "
            "features [4]");
  EXPECT_THAT(of_feature(standardized("a", 0, 1e-60)),
              HasSubstr("expected offsets and divisors that float32 can represent, got 0 and 1e-60 "
                        "of the column a"));
  EXPECT_THAT(of_feature(standardized("a", 1e6, 1)), HasSubstr("got the column a of numbers near"));
  using Kind = data::TableFeature::Kind;
  EXPECT_THAT(of_feature({.kind = Kind::hashed, .columns = {"city"}, .buckets = 2}, 2),
              HasSubstr("got the feature city#0, which is a hash, for which ONNX has no operator"));
  EXPECT_THAT(of_feature({.kind = Kind::crossed, .columns = {"a", "b"}, .buckets = 2}, 2),
              HasSubstr("got the feature a x b#0, which is a hash"));
  EXPECT_THAT(of_feature({.kind = Kind::categorical,
                          .columns = {"genres"},
                          .vocabulary = {"x"},
                          .output = data::CategoryOutput::multi_hot}),
              HasSubstr("got the feature genres=x, which has several words in a field"));
  data::TableSchema windows;
  windows.window.rows = 3;
  EXPECT_THAT(
      message(zoo::linear({1}, 2),
              {.preprocessing = {.table = std::make_shared<const data::TableSchema>(windows)}}),
      HasSubstr("expected a table whose samples are its rows; they are windows of 3"));
  const std::vector<zoo::DataInput> inputs{
      {.input = {.name = "tokens", .shape = {8}, .type = ElementType::int32}, .categories = 11}};
  EXPECT_EQ(
      message(zoo::gpt(inputs, {.layers = 1, .width = 16}), {.preprocessing = {.pixels = three}}),
      "[preprocessing] expected an input of float32, got none in gpt:1x16");
}

TEST(ExportOnnx, RejectsSegmentsOfSeveralDocumentsInRecurrentLayers) {
  const char* const description = R"({"inputs": {"segments": {"shape": [5], "type": "int32"},
      "x": {"shape": [5, 2]}}, "layers": [{"type": "gru", "name": "g", "units": 3,
      "inputs": ["x", "segments"], "segments": true}]})";
  EXPECT_EQ(refusal(description),
            "[g (gru)] expected a recurrent layer whose segments are one text and its padding; its "
            "segments may be several documents, for which ONNX has no operator");
  EXPECT_EQ(refusal(description, {.one_document = true}), "no error");
}

class OwnLayer final : public model::CustomLayer {
 public:
  std::string kind() const override { return "own"; }
  model::Shape build(model::BuildContext& context) const override { return context.input(); }
  void forward(const model::Tensors& /*tensors*/,
               const model::PassContext& /*pass*/) const override {}
  void backward(const model::Tensors& /*tensors*/,
                const model::PassContext& /*pass*/) const override {}
};

TEST(ExportOnnx, RejectsUserDefinedLayers) {
  Network network({4});
  network.add(OwnLayer(), {model::kInput}, "mine");
  try {
    Exported exported(std::move(network));
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[mine (own)] expected a layer of Lockstep that ONNX has operators for, got a "
                 "user-defined layer or one of a TorchScript file");
  }
}

// A layer without operators fails the export, which names it: see random_models.cpp, which has all.
TEST(ExportOnnx, HasUniqueNames) {
  const Exported exported(zoo::make("vit:2x64", {32, 32, 3}, 10));
  std::vector<std::string> names;
  for (const Node& node : exported.model.graph.nodes)
    for (const std::string& output : node.outputs) names.push_back(output);
  for (const Tensor& tensor : exported.model.graph.initializers) names.push_back(tensor.name);
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
