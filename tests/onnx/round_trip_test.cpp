// Exported networks are imported with equal layers, names and outputs.
#include <fmt/format.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/device/buffer.h"
#include "lockstep/model/compiled/compiled_model.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/import.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Network;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;
using zoo::DataInput;

constexpr std::int64_t kTripSamples = 5;
constexpr std::int64_t kTripCategories = 7;

/// Kinds of layers and arrays of parameters, both sorted: two branches may change places.
std::vector<std::string> sorted_parts(const Network& network) {
  std::vector<std::string> parts;
  for (const model::Node& node : network.nodes()) parts.push_back(node.layer->kind());
  for (const model::ParameterInfo& entry : network.parameters().entries())
    parts.push_back(fmt::format("{} {}", entry.name, model::to_string(entry.shape)));
  std::ranges::sort(parts);
  return parts;
}

/// Texts of different lengths with padding, and in `segments` one document or two.
std::vector<std::int32_t> random_indices(const model::NetworkInput& input, bool one_document,
                                         std::mt19937& random) {
  const std::int64_t positions = model::element_count(input.shape);
  std::vector<std::int32_t> values;
  for (std::int64_t sample = 0; sample < kTripSamples; ++sample)
    for (std::int64_t position = 0; position < positions; ++position)
      values.push_back(!input.name.ends_with("segments")
                           ? static_cast<std::int32_t>(random() % kTripCategories)
                       : position >= positions - sample           ? 0
                       : one_document || position < positions / 3 ? 1
                                                                  : 2);
  return values;
}

/// A network with random weights, and random samples.
class RoundTrip {
 public:
  explicit RoundTrip(Network network, bool one_document = false)
      : network_(std::make_shared<const Network>(std::move(network))),
        parameters_(network_->parameters().flat_size()),
        buffers_(network_->buffers().flat_size(), 0.75f),
        one_document_(one_document) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.3f);
    for (const model::ParameterInfo& entry : network_->parameters().entries())
      for (float& value : model::ParameterTable::slice(std::span(parameters_), entry))
        value = entry.name.ends_with("gamma") ? 1 + normal(random) : normal(random);
    for (const model::NetworkInput& input : network_->inputs()) {
      std::vector<float>& floats = features_.emplace_back();
      std::vector<std::int32_t>& integers = indices_.emplace_back();
      if (input.type == ElementType::int32)
        integers = random_indices(input, one_document, random);
      else
        for (std::int64_t k = 0; k < kTripSamples * model::element_count(input.shape); ++k)
          floats.push_back(normal(random));
    }
  }

  Model exported(ExportOptions options = {.fold = false}) const {
    options.one_document = one_document_;
    return export_network(*network_, {.parameters = parameters_, .buffers = buffers_}, options);
  }

  void expect_the_same(const ImportedNetwork& imported) const {
    ASSERT_EQ(imported.network.inputs().size(), network_->inputs().size());
    const auto expected = outputs(network_, parameters_, buffers_);
    const auto actual = outputs(std::make_shared<const Network>(imported.network),
                                imported.parameters, imported.buffers);
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k)
      EXPECT_THAT(actual[k], Pointwise(FloatNear(1e-5f), expected[k]));
  }

  const Network& network() const { return *network_; }
  std::span<const float> parameters() const { return parameters_; }

 private:
  std::vector<std::vector<float>> outputs(std::shared_ptr<const Network> of,
                                          std::span<const float> parameters,
                                          std::span<const float> buffers) const {
    device::HostAllocator allocator;
    model::CompiledModel compiled(std::move(of), device::Device{}, allocator);
    std::ranges::copy(parameters, compiled.parameters().begin());
    std::ranges::copy(buffers, compiled.buffers().begin());
    compiled.parameters_changed();
    std::vector<model::InputView> views;
    for (std::size_t k = 0; k < features_.size(); ++k)
      views.push_back({.features = features_[k], .indices = indices_[k]});
    std::vector<std::vector<float>> result;
    for (const auto& output : compiled.predict_outputs({.samples = kTripSamples, .inputs = views}))
      result.emplace_back(output.begin(), output.end());
    return result;
  }

  std::shared_ptr<const Network> network_;
  std::vector<float> parameters_;
  std::vector<float> buffers_;
  bool one_document_;
  std::vector<std::vector<float>> features_;
  std::vector<std::vector<std::int32_t>> indices_;
};

DataInput text_of_length(const char* name, std::int64_t positions) {
  return {.input = {.name = name, .shape = {positions}, .type = ElementType::int32},
          .categories = kTripCategories};
}

void expect_round_trip(Network network, bool one_document = false) {
  const RoundTrip trip(std::move(network), one_document);
  try {
    const ImportedNetwork imported = import_network(trip.exported(), "net.onnx");
    EXPECT_EQ(sorted_parts(imported.network), sorted_parts(trip.network()));
    trip.expect_the_same(imported);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(OnnxRoundTrip, KeepsTheLayersOfReadyMadeNetworksOfTexts) {
  const std::vector<DataInput> text{text_of_length("tokens", 12)};
  const std::vector<DataInput> documents{text_of_length("tokens", 12),
                                         text_of_length("segments", 12)};
  for (const char* const name : {"gpt:2x32", "gpt:1x64x4,ffn=swiglu", "lstm:2x16,embedding=8",
                                 "lstm:1x16,return_sequences"}) {
    SCOPED_TRACE(name);
    expect_round_trip(zoo::make(name, text, 3));
    expect_round_trip(zoo::make(name, documents, 3), std::string_view(name).starts_with("lstm"));
  }
}

// The export omits the rows of positions and token types that no sample uses.
TEST(OnnxRoundTrip, KeepsTheUsedRowsOfTheEmbeddingsOfBerts) {
  const std::vector<DataInput> documents{text_of_length("tokens", 12),
                                         text_of_length("segments", 12)};
  for (const char* const name : {"minilm:2x64", "bert:1x64"}) {
    const RoundTrip trip(zoo::make(name, documents, 3));
    const ImportedNetwork imported = import_network(trip.exported(), "net.onnx");
    trip.expect_the_same(imported);
    const model::ParameterTable& table = imported.network.parameters();
    EXPECT_EQ(table.find("embeddings.position_embeddings/embeddings")->shape,
              (model::Shape{12, 64}));
    EXPECT_EQ(table.find("embeddings.token_type_embeddings/embeddings")->shape,
              (model::Shape{1, 64}));
    EXPECT_EQ(table.entries().size(), trip.network().parameters().entries().size());
  }
}

TEST(OnnxRoundTrip, KeepsTheLayersOfNetworksThatReadPairs) {
  const std::vector<DataInput> pair{text_of_length("source", 9), text_of_length("tokens", 8)};
  const std::vector<DataInput> padded{text_of_length("source", 9),
                                      text_of_length("source_segments", 9),
                                      text_of_length("tokens", 8)};
  expect_round_trip(zoo::make("seq2seq:2x16,embedding=8", pair, 3));
  expect_round_trip(zoo::make("seq2seq:1x16", padded, 3), true);
}

TEST(OnnxRoundTrip, KeepsTheLayersOfTransformersOfImages) {
  const RoundTrip trip(zoo::make("vit:1x64", {16, 16, 3}, 4));
  const ImportedNetwork imported = import_network(trip.exported(), "net.onnx");
  EXPECT_EQ(imported.network.parameters().entries().size(),
            trip.network().parameters().entries().size());
  trip.expect_the_same(imported);
}

TEST(OnnxRoundTrip, KeepsAttentionOfEveryKind) {
  for (const char* const options :
       {R"("heads": 2)", R"("heads": 2, "causal": true)", R"("heads": 2, "rotary": 10000)",
        R"("heads": 1, "rotary": 500.5, "causal": true)",
        R"("heads": 4, "key_value_heads": 1, "causal": true, "rotary": 1e6)"})
    for (const bool has_segments : {false, true}) {
      SCOPED_TRACE(options);
      const std::string inputs =
          has_segments ? R"("inputs": ["x", "segments"], )" : R"("inputs": ["x"], )";
      const std::string end = has_segments ? R"({"type": "flatten"}, {"type": "dense", "units": 3})"
                                           : R"({"type": "dense", "units": 3})";
      const std::string description = fmt::format(
          R"({{"inputs": {{"x": {{"shape": [6, 24]}}{}}}, "layers": [
              {{"type": "attention", {}{}}}, {}]}})",
          has_segments ? R"(, "segments": {"shape": [6], "type": "int32"})" : "", inputs, options,
          end);
      expect_round_trip(model::network_from_json(description, "net.json"));
    }
}

TEST(OnnxRoundTrip, KeepsNormalizationsAndSharedRows) {
  expect_round_trip(model::network_from_json(
      R"({"inputs": {"tokens": {"shape": [6], "type": "int32"}}, "layers": [
          {"type": "embedding", "vocabulary": 7, "dimension": 8, "name": "rows"},
          {"type": "positional_embedding", "kind": "sinusoidal"},
          {"type": "rms_normalization", "epsilon": 0.01, "name": "rms"},
          {"type": "dense", "units": 8, "activation": "silu", "name": "hidden"},
          {"type": "positional_embedding", "kind": "constant", "name": "type"},
          {"type": "tied_dense", "to": "rows"}]})",
      "net.json"));
}

TEST(OnnxRoundTrip, KeepsTheFunctionsOfImagesAndSequences) {
  expect_round_trip(model::network_from_json(
      R"({"input": [8, 9, 4], "layers": [
          {"type": "conv2d", "filters": 6, "kernel": 3, "dilation": 2, "name": "conv"},
          {"type": "elu", "alpha": 0.5, "name": "activation"},
          {"type": "scale", "name": "image_scale"},
          {"type": "selu"},
          {"type": "scale", "use_bias": false, "name": "factor"},
          {"type": "hard_swish"},
          {"type": "conv2d_transpose", "filters": 4, "kernel": 2, "strides": 2, "name": "larger"},
          {"type": "softplus"},
          {"type": "up_sampling2d", "size": [2, 1]},
          {"type": "softsign"},
          {"type": "up_sampling2d", "size": [1, 2], "interpolation": "bilinear"},
          {"type": "rescaling", "scale": 0.5, "offset": 0.25},
          {"type": "mish"},
          {"type": "global_average_pooling2d", "name": "mean"},
          {"type": "dense", "units": 4, "name": "end"},
          {"type": "hard_sigmoid"},
          {"type": "hard_tanh", "min_value": 0.25, "max_value": 0.75},
          {"type": "silu", "beta": 1.702}]})",
      "net.json"));
}

TEST(OnnxRoundTrip, KeepsTheMomentumOfNormalizations) {
  expect_round_trip(model::network_from_json(
      R"({"inputs": {"x": {"shape": [6]}}, "layers": [
          {"type": "dense", "units": 8, "name": "hidden"},
          {"type": "batch_normalization", "momentum": 0.625, "epsilon": 0.01, "name": "norm"},
          {"type": "dense", "units": 3, "name": "end"}]})",
      "net.json"));
}

TEST(OnnxRoundTrip, KeepsInitialStatesOfNetworksWithWeightsInFloat16) {
  const std::vector<DataInput> pair{text_of_length("source", 9), text_of_length("tokens", 8)};
  const RoundTrip trip(zoo::make("seq2seq:1x32", pair, 3));
  const ImportedNetwork imported =
      import_network(trip.exported({.fold = false, .weights = WeightStorage::float16}), "net.onnx");
  EXPECT_EQ(sorted_parts(imported.network), sorted_parts(trip.network()));
  for (const model::ParameterInfo& entry : imported.network.parameters().entries()) {
    if (!entry.name.ends_with("bias")) continue;
    const auto own = model::ParameterTable::slice(trip.parameters(),
                                                  *trip.network().parameters().find(entry.name));
    EXPECT_TRUE(std::ranges::equal(
        model::ParameterTable::slice(std::span<const float>(imported.parameters), entry), own))
        << entry.name;
  }
}

TEST(OnnxRoundTrip, KeepsRecurrentLayersOfEveryKind) {
  for (const char* const type : {"lstm", "gru", "simple_rnn"})
    for (const char* const options :
         {R"("bidirectional": true, "return_sequences": true)", R"("bidirectional": true)",
          R"("go_backwards": true, "return_sequences": true)", R"("go_backwards": true)",
          R"("return_sequences": true, "use_bias": false)",
          R"("bidirectional": true, "recurrent_bias": true)"})
      for (const bool has_segments : {false, true}) {
        if (type == std::string_view("gru") && std::string_view(options).ends_with("_bias\": true"))
          continue;  // always has one
        SCOPED_TRACE(fmt::format("{} {} {}", type, options, has_segments));
        expect_round_trip(
            model::network_from_json(
                fmt::format(R"({{"inputs": {{"x": {{"shape": [6, 24]}}{}}}, "layers": [
                {{"type": "{}", "units": 4, "segments": {}, {}, "inputs": ["x"{}], "name": "cell"}},
                {{"type": "dense", "units": 3, "name": "end"}}]}})",
                            has_segments ? R"(, "segments": {"shape": [6], "type": "int32"})" : "",
                            type, has_segments, options, has_segments ? R"(, "segments")" : ""),
                "net.json"),
            true);
      }
}

TEST(OnnxRoundTrip, SplitsAnArray) {
  Model model{.producer = {}, .producer_version = {}, .graph = {}, .metadata = {}};
  model.graph.inputs = {{.name = "x", .shape = {std::string("n"), std::int64_t{6}}}};
  model.graph.outputs = {{.name = "y", .shape = {std::string("n"), std::int64_t{3}}}};
  model.graph.nodes = {{.name = "parts",
                        .type = "Split",
                        .domain = {},
                        .inputs = {"x"},
                        .outputs = {"a", "b"},
                        .attributes = {{"axis", std::int64_t{1}}}},
                       {.name = "sum",
                        .type = "Add",
                        .domain = {},
                        .inputs = {"a", "b"},
                        .outputs = {"y"},
                        .attributes = {}}};
  const ImportedNetwork imported = import_network(model, "net.onnx");
  device::HostAllocator allocator;
  model::CompiledModel compiled(std::make_shared<const Network>(imported.network), device::Device{},
                                allocator);
  const std::vector<float> features = {1, 2, 3, 10, 20, 30};
  const auto output = compiled.predict_batch({.samples = 1, .features = features});
  EXPECT_THAT(std::vector<float>(output.begin(), output.end()), ::testing::ElementsAre(11, 22, 33));
  model.graph.nodes[0].attributes[0].value = std::int64_t{0};
  try {
    import_network(model, "net.onnx");
    FAIL() << "splits the samples";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("Split (node \"parts\"): it splits the samples"));
  }
}

// Each change results in a function that no layer computes.
TEST(OnnxRoundTrip, RecognizesOnlyAttention) {
  const RoundTrip trip(zoo::make("gpt:1x32", std::vector{text_of_length("tokens", 6)}, 3));
  const Model model = trip.exported();
  const auto node_of = [](Model& changed, std::string_view type) -> Node& {
    return *std::ranges::find(changed.graph.nodes, type, &Node::type);
  };
  const auto expect_refused = [&](const char* what, const auto& change) {
    SCOPED_TRACE(what);
    Model changed = model;
    change(changed);
    EXPECT_THROW(import_network(changed, "net.onnx"), Error);
  };
  expect_refused("a mask with a hole", [&](Model& changed) {
    for (Tensor& tensor : changed.graph.initializers)
      if (tensor.type == TensorType::boolean) tensor.bytes[0] = 0;
  });
  expect_refused("another scale", [&](Model& changed) {
    for (Node& node : changed.graph.nodes)
      if (node.name.ends_with("queries_scaled")) std::swap(node.inputs[0], node.inputs[1]);
  });
  expect_refused("the softmax over queries", [&](Model& changed) {
    node_of(changed, "Softmax").attributes[0].value = std::int64_t{-2};
  });
  expect_refused("heads in another order", [&](Model& changed) {
    node_of(changed, "Transpose").attributes[0].value = std::vector<std::int64_t>{0, 1, 2, 3};
  });
  EXPECT_NO_THROW(import_network(model, "net.onnx"));
}

/// The error of importing an exported network modified by `change`.
std::string error_of_changed(const std::string& layer, const auto& change) {
  const RoundTrip trip(
      model::network_from_json(R"({"input": [6, 24], "layers": [)" + layer + "]}", "net.json"));
  Model model = trip.exported();
  change(model.graph);
  try {
    import_network(model, "net.onnx");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(OnnxRoundTrip, RejectsLayersOfOtherShapes) {
  EXPECT_EQ(error_of_changed(R"({"type": "attention", "heads": 2, "name": "a"})",
                             [](Graph& graph) {
                               graph.inputs[0].shape[1] = std::int64_t{12};
                               graph.inputs[0].shape[2] = std::int64_t{12};
                             }),
            "[net.onnx] expected samples of [6, 24] as input 0 of a layer of the type attention; "
            "attention (node \"a_1\"): got [12, 12]");
  EXPECT_EQ(error_of_changed(R"({"type": "rms_normalization", "name": "n"})",
                             [](Graph& graph) {
                               Tensor& gamma =
                                   *std::ranges::find(graph.initializers, "n/gamma", &Tensor::name);
                               gamma.shape = {1};
                               gamma.bytes.resize(sizeof(float));
                             }),
            "[net.onnx] expected 24 weights of floating-point numbers; "
            "rms_normalization (node \"n_1\"): got [1]");
}

}  // namespace
}  // namespace lockstep::inline v0::onnx
