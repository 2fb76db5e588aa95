// Single layers: with the input and parameters of PyTorch, the output and gradients are those of
// PyTorch; scripts/make_reference wrote them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/model/layers/layers.h"
#include "tests/model/support/reference_file.h"
#include "tests/model/support/test_layers.h"
#include "tests/model/support/trial.h"

namespace lockstep::inline v0::model {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

constexpr std::int64_t kReferenceSamples = 2;

// The arrays of one layer in a file.
class LayerFile {
 public:
  explicit LayerFile(std::string name, const std::string& file = "layers")
      : file_(file), name_(std::move(name)) {}

  const ReferenceFile::Array& array(const std::string& key) const {
    return file_.array(name_ + "/" + key);
  }
  const std::vector<std::int32_t>& integers(const std::string& key) const {
    return file_.integers(name_ + "/" + key);
  }
  /// Calls visit(NAME, array) with each array "GROUP/NAME".
  template <typename Visit>
  void each(const std::string& group, Visit visit) const {
    const std::string prefix = name_ + "/" + group + "/";
    for (const std::string& key : file_.names(prefix))
      visit(key.substr(prefix.size()), file_.array(key));
  }

 private:
  ReferenceFile file_;
  std::string name_;
};

void expect_the_reference(const LayerFile& file, Trial& trial) {
  const auto fill = [](const ParameterTable& table, const std::string& name,
                       const ReferenceFile::Array& array, std::span<float> values) {
    EXPECT_EQ(table.find(name)->shape, array.shape) << name;
    std::ranges::copy(array.values, values.begin());
  };
  CompiledModel& model = trial.model();
  file.each("parameter", [&](const std::string& name, const ReferenceFile::Array& array) {
    fill(model.parameter_table(), name, array, trial.parameter(name));
  });
  file.each("buffer", [&](const std::string& name, const ReferenceFile::Array& array) {
    fill(model.buffer_table(), name, array, trial.buffer(name));
  });
  model.parameters_changed();
  trial.targets() = file.array("target").values;

  const ReferenceFile::Array& output = file.array("output");
  EXPECT_EQ(trial.network().output_shape(), Shape(output.shape.begin() + 1, output.shape.end()));
  EXPECT_THAT(trial.predict(), Pointwise(FloatNear(1e-5f), output.values));
  trial.train();
  std::size_t compared = 0;
  file.each("gradient", [&](const std::string& name, const ReferenceFile::Array& array) {
    ++compared;
    EXPECT_THAT(trial.gradient(name), Pointwise(FloatNear(1e-6f), array.values)) << name;
  });
  EXPECT_EQ(compared, model.trained_table().entries().size());
}

struct LayerCase {
  const char* name;
  std::function<void(Network&)> add;
};

template <typename L>
LayerCase layer_case(const char* name, L layer) {
  return {name, [layer](Network& network) { network.add(layer); }};
}

/// `layer` of the input and its hyperbolic tangent.
template <typename L>
LayerCase two_input_case(const char* name, L layer) {
  return {name, [layer](Network& network) {
            const NodeId input = network.last();
            network.add(layer, {input, network.add(Tanh())});
          }};
}

std::ostream& operator<<(std::ostream& out, const LayerCase& one) { return out << one.name; }
std::string name_of_layer(const ::testing::TestParamInfo<LayerCase>& info) {
  return info.param.name;
}

// Compares a layer of floats, after a layer that exposes their gradient.
void expect_the_reference_of_features(const LayerFile& file, const LayerCase& layer) {
  const ReferenceFile::Array& input = file.array("input");
  Network network(Shape(input.shape.begin() + 1, input.shape.end()));
  network.add(Shift());
  layer.add(network);
  Trial trial(std::move(network), kReferenceSamples);
  trial.features() = input.values;
  expect_the_reference(file, trial);
}

class LayerReference : public ::testing::TestWithParam<LayerCase> {};

TEST_P(LayerReference, MatchesPyTorch) {
  expect_the_reference_of_features(LayerFile(GetParam().name), GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, LayerReference,
                         ::
                             testing::Values(layer_case("conv1d",
                                                        Conv1D({.filters = 6,
                                                                .kernel = 3,
                                                                .strides = 2,
                                                                .padding = Padding::symmetric,
                                                                .groups = 2})),
                                             layer_case(
                                                 "depthwise_conv2d",
                                                 DepthwiseConv2D({.kernel = 3,
                                                                  .strides = 2,
                                                                  .padding = Padding::symmetric,
                                                                  .depth_multiplier = 2})),
                                             layer_case(
                                                 "conv2d_transpose",
                                                 Conv2DTranspose({.filters = 5,
                                                                  .kernel = 3,
                                                                  .strides = 2,
                                                                  .padding = Padding::symmetric})),
                                             LayerCase{"batch_normalization",
                                                       [](Network& network) {
                                                         network.add(BatchNormalization());
                                                         const std::vector<std::string> all = {
                                                             "batch_normalization/*"};
                                                         network.freeze(all);
                                                       }},
                                             layer_case("layer_normalization",
                                                        LayerNormalization()),
                                             layer_case(
                                                 "average_pool2d",
                                                 AveragePool2D({.pool = 3,
                                                                .strides = 2,
                                                                .padding = Padding::symmetric})),
                                             layer_case("max_pool2d",
                                                        MaxPool2D({.pool = 3,
                                                                   .strides = 2,
                                                                   .padding = Padding::symmetric})),
                                             layer_case("global_average_pooling2d",
                                                        GlobalAveragePooling2D()),
                                             layer_case("global_max_pooling2d",
                                                        GlobalMaxPooling2D()),
                                             layer_case("up_sampling2d",
                                                        UpSampling2D({.size = {2, 3}})),
                                             layer_case(
                                                 "bilinear_up_sampling2d", UpSampling2D({.size =
                                                                                             {2, 3},
                                                                                         .interpolation =
                                                                                             Interpolation::bilinear})),
                                             layer_case(
                                                 "zero_padding2d", ZeroPadding2D({.top = 1,
                                                                                  .bottom = 2,
                                                                                  .left = 0,
                                                                                  .right = 3})),
                                             layer_case("permute", Permute({.dims = {3, 1, 2}})),
                                             layer_case("reshape", Reshape({.shape = {10, 12}})),
                                             two_input_case("concatenate",
                                                            Concatenate({.axis = 1})),
                                             two_input_case("multiply", Multiply()),
                                             two_input_case("add", Add()), layer_case("relu", ReLU()),
                                             layer_case("relu6", ReLU6()), layer_case("leaky_relu", LeakyReLU()),
                                             layer_case("gelu", GELU()),
                                             layer_case("approximate_gelu",
                                                        GELU({.approximate = true})),
                                             layer_case("silu", SiLU()),
                                             layer_case("sigmoid", Sigmoid()),
                                             layer_case("softmax", Softmax()),
                                             layer_case("tanh", Tanh()),
                                             layer_case(
                                                 "fake_quantize", FakeQuantize({.scale = 0.015625f,
                                                                                .zero_point = 10})),
                                             layer_case("conv2d",
                                                        Conv2D({.filters = 6,
                                                                .dilation = 2,
                                                                .padding = Padding::symmetric})),
                                             layer_case("group_normalization", GroupNormalization(
                                                                                   {.groups = 2})),
                                             layer_case("scale", Scale()), two_input_case("matmul", MatMul({.transpose_b = true})),
                                             LayerCase{"multiply_by_channels",
                                                       [](Network& network) {
                                                         const NodeId input = network.last();
                                                         network.add(Tanh());
                                                         network.add(GlobalAveragePooling2D());
                                                         const NodeId weights = network.add(
                                                             Reshape({.shape = {1, 1, 4}}));
                                                         network.add(Multiply(), {weights, input});
                                                       }},
                                             LayerCase{"multiply_by_positions",
                                                       [](Network& network) {
                                                         const NodeId input = network.last();
                                                         network.add(Tanh());
                                                         network.add(Permute({.dims = {3, 1, 2}}));
                                                         network.add(Reshape({.shape = {4, 30}}));
                                                         network.add(
                                                             Cropping1D({.before = 0, .after = 3}));
                                                         const NodeId weights = network.add(
                                                             Reshape({.shape = {5, 6, 1}}));
                                                         network.add(Multiply(), {input, weights});
                                                       }},
                                             layer_case("elu", ELU({.alpha = 0.75f})),
                                             layer_case("selu", SELU()), layer_case("mish", Mish()),
                                             layer_case("softplus", Softplus()),
                                             layer_case("softsign", Softsign()),
                                             layer_case("hard_swish", HardSwish()),
                                             layer_case("hard_sigmoid", HardSigmoid()),
                                             layer_case("hard_tanh", HardTanh({.min_value = -0.5f,
                                                                               .max_value = 2})),
                                             layer_case("swish", SiLU({.beta = 1.702f})),
                                             layer_case("rescaling",
                                                        Rescaling({.scale = 2, .offset = -3}))),
                         name_of_layer);

class RecurrentReference : public ::testing::TestWithParam<LayerCase> {};

TEST_P(RecurrentReference, MatchesPyTorch) {
  expect_the_reference_of_features(LayerFile(GetParam().name, "recurrent_layers"), GetParam());
}

constexpr RecurrentOptions kBothDirections{
    .units = 3, .return_sequences = true, .bidirectional = true};
INSTANTIATE_TEST_SUITE_P(All, RecurrentReference,
                         ::testing::Values(layer_case("lstm", LSTM(kBothDirections)),
                                           layer_case("gru", GRU(kBothDirections)),
                                           layer_case("simple_rnn", SimpleRNN(kBothDirections))),
                         name_of_layer);

struct DocumentsCase {
  std::string kind;
  const char* name;
  RecurrentOptions options;
};

std::ostream& operator<<(std::ostream& out, const DocumentsCase& one) {
  return out << one.kind << "_" << one.name;
}

std::vector<DocumentsCase> documents_cases() {
  std::vector<DocumentsCase> cases;
  for (const char* kind : {"lstm", "gru", "simple_rnn"}) {
    cases.push_back({kind, "documents", kBothDirections});
    cases.back().options.initial_state = true;
    cases.push_back({kind, "last_of_documents", {.units = 3, .bidirectional = true}});
    cases.push_back({kind, "last_of_state", {.units = 3, .initial_state = true}});
  }
  for (DocumentsCase& one : cases) one.options.segments = true;
  return cases;
}

class DocumentsReference : public ::testing::TestWithParam<DocumentsCase> {};

// The positions are an embedding of their segments and of their numbers, and the initial state is a
// dense layer of all of them: both have gradients.
TEST_P(DocumentsReference, MatchesPyTorch) {
  const auto& [kind, name, options] = GetParam();
  const LayerFile file(kind + "_" + name, "recurrent_layers");
  Network network({{.name = "segments", .shape = {9}, .type = ElementType::int32}});
  network.add(Embedding({.vocabulary = 5, .dimension = 4}));
  std::vector<NodeId> inputs = {network.add(PositionalEmbedding())};
  if (options.initial_state) {
    const std::int64_t states = (kind == "lstm" ? 2 : 1) * (options.bidirectional ? 2 : 1);
    network.add(Flatten());
    inputs.push_back(network.add(Dense({.units = states * options.units})));
  }
  inputs.push_back(network.input("segments"));
  if (kind == "lstm") network.add(LSTM(options), inputs);
  if (kind == "gru") network.add(GRU(options), inputs);
  if (kind == "simple_rnn") network.add(SimpleRNN(options), inputs);
  Trial trial(std::move(network), kReferenceSamples);
  trial.indices() = file.integers("input");
  expect_the_reference(file, trial);
}

INSTANTIATE_TEST_SUITE_P(All, DocumentsReference, ::testing::ValuesIn(documents_cases()),
                         [](const auto& test) { return test.param.kind + "_" + test.param.name; });

class SequenceLayerReference : public ::testing::TestWithParam<LayerCase> {};

TEST_P(SequenceLayerReference, MatchesPyTorch) {
  expect_the_reference_of_features(LayerFile(std::string("layer/") + GetParam().name, "sequences"),
                                   GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    All, SequenceLayerReference,
    ::testing::Values(
        layer_case("attention_causal", Attention({.heads = 2, .causal = true})),
        layer_case("attention_grouped", Attention({.heads = 4, .key_value_heads = 2})),
        layer_case("attention_rotary",
                   Attention({.heads = 4, .key_value_heads = 1, .causal = true, .rotary = 100})),
        LayerCase{"attention_cross",
                  [](Network& network) {
                    const NodeId queries = network.last();
                    const NodeId keys = network.add(Permute({.dims = {2, 1}}));
                    network.add(Attention({.heads = 2, .key_value_heads = 1}),
                                {queries, keys, network.add(Tanh())});
                  }},
        LayerCase{"additive_attention",
                  [](Network& network) {
                    const NodeId keys = network.last();
                    const NodeId queries = network.add(Cropping1D({.before = 0, .after = 2}));
                    network.add(AdditiveAttention(), {queries, keys, network.add(Tanh(), {keys})});
                  }},
        layer_case("rms_normalization", RMSNormalization()),
        layer_case("positional_embedding", PositionalEmbedding()),
        layer_case("sinusoidal_embedding",
                   PositionalEmbedding({.kind = PositionalEmbedding::Kind::sinusoidal})),
        layer_case("lstm", LSTM({.units = 5})), layer_case("gru", GRU({.units = 5})),
        layer_case("simple_rnn", SimpleRNN({.units = 5})),
        layer_case("lstm_bidirectional", LSTM({.units = 5, .bidirectional = true})),
        layer_case("gru_bidirectional", GRU({.units = 5, .bidirectional = true})),
        layer_case("simple_rnn_bidirectional", SimpleRNN({.units = 5, .bidirectional = true}))),
    name_of_layer);

// Documents with padding before and after them.
TEST(SegmentsReference, MatchesPyTorch) {
  const LayerFile file("layer/attention_segments", "sequences");
  Network network({{.name = "segments", .shape = {9}, .type = ElementType::int32}});
  network.add(Embedding({.vocabulary = 4, .dimension = 24}));
  const NodeId rows = network.add(PositionalEmbedding());
  network.add(Attention({.heads = 2, .causal = true}), {rows, network.input("segments")});
  Trial trial(std::move(network), kReferenceSamples);
  trial.indices() = file.integers("input");
  expect_the_reference(file, trial);
}

TEST(EmbeddingReference, MatchesPyTorch) {
  const LayerFile file("embedding");
  Network network({{.name = "words", .shape = {3}, .type = ElementType::int32}});
  network.add(Embedding({.vocabulary = 7, .dimension = 4}));
  Trial trial(std::move(network), kReferenceSamples);
  trial.indices() = file.integers("input");
  expect_the_reference(file, trial);
}

}  // namespace
}  // namespace lockstep::inline v0::model
