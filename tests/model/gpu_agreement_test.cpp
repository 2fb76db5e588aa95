// A GPU computes what the CPU does, layer by layer, up to rounding. Runs on gpu:0, pretended or
// not.
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/device/gpu.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network_json.h"
#include "lockstep/model/zoo/zoo.h"
#include "tests/model/support/sides.h"

namespace lockstep::model {
namespace {

using device::Device;
using device::DeviceKind;

struct AgreementCase {
  std::string name;
  std::function<Network()> make;
  std::vector<std::int64_t> batches = {1, 3};
  double depth = 1;  // how much of rounding adds up

  friend std::ostream& operator<<(std::ostream& stream, const AgreementCase& one) {
    return stream << one.name;
  }
};

Network image_network(Shape shape = {7, 5, 3}) { return Network(std::move(shape)); }

Network ended(Network network) {
  if (network.output_shape().size() > 1) network.add(Flatten());
  network.add(Dense({.units = 5}));
  return network;
}

template <typename L>
Network of_layer(L layer, Shape shape = {7, 5, 3}) {
  Network network = image_network(std::move(shape));
  network.add(Conv2D({.filters = 4, .kernel = 1}));  // so that the layer has a gradient to give
  network.add(std::move(layer));
  return ended(std::move(network));
}

// The first layer has a gradient to give, to one before it.
template <typename First, typename Second>
Network recurrent_network(First first, Second second) {
  Network network({6, 3});
  network.add(LayerNormalization());
  network.add(std::move(first));
  network.add(std::move(second));
  return ended(std::move(network));
}

// Samples of several documents with padding, and an initial state that has a gradient, too.
template <typename First, typename Second>
Network recurrent_network_of_documents(First first, Second second, std::int64_t state) {
  Network network({{.name = "values", .shape = {6, 3}},
                   {.name = "segments", .shape = {6}, .type = ElementType::int32}});
  const NodeId segments = network.input("segments");
  const NodeId values = network.add(LayerNormalization(), {kInput});
  network.add(Flatten());
  const NodeId initial = network.add(Dense({.units = state}));
  const NodeId rows = network.add(std::move(first), {values, initial, segments});
  network.add(std::move(second), {rows, segments});
  return ended(std::move(network));
}

// Convolutions as they stand in residual blocks; filters that do not fill what is aligned, zeros on
// one side.
Network normalized_convolutions() {
  Network network = image_network({8, 7, 3});
  network.add(
      Conv2D({.filters = 6, .kernel = 3, .padding = Padding::symmetric, .use_bias = false}));
  network.add(BatchNormalization());
  const NodeId block = network.add(ReLU());
  network.add(Conv2D(
      {.filters = 5, .kernel = 3, .strides = 2, .padding = Padding::same, .use_bias = false}));
  const NodeId normalized = network.add(BatchNormalization());
  network.add(Conv2D({.filters = 5, .kernel = 1, .strides = 2, .use_bias = false}), {block});
  network.add(Add(), {network.add(BatchNormalization()), normalized});
  network.add(ReLU());
  return ended(std::move(network));
}

const AgreementCase kAgreementCases[] = {
    {"dense", [] { return ended(Network({9})); }},
    {"dense_relu",
     [] {
       Network network({9});
       network.add(Dense({.units = 7}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"dense_without_bias",
     [] {
       Network network({6});
       network.add(Dense({.units = 8, .use_bias = false}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"softmax_of_many",
     [] {
       Network network({9});
       network.add(Dense({.units = 601}));
       network.add(Softmax());
       return ended(std::move(network));
     }},
    {"dense_of_pixels",
     [] {
       Network network = image_network();
       network.add(Dense({.units = 7}));
       network.add(ReLU());
       network.add(Dense({.units = 4, .use_bias = false}));
       return ended(std::move(network));
     }},
    {"convolution", [] { return of_layer(Conv2D({.filters = 6, .kernel = 3})); }},
    {"convolution_same",
     [] { return of_layer(Conv2D({.filters = 5, .kernel = 3, .padding = Padding::same})); }},
    {"convolution_with_uneven_zeros",
     [] {
       return of_layer(Conv2D({.filters = 5, .kernel = 4, .strides = 2, .padding = Padding::same}));
     }},
    {"convolution_in_groups",
     [] {
       return of_layer(Conv2D(
           {.filters = 6, .kernel = 3, .strides = 2, .padding = Padding::symmetric, .groups = 2}));
     }},
    {"depthwise_convolution",
     [] { return of_layer(DepthwiseConv2D({.strides = 2, .depth_multiplier = 2})); }},
    {"transposed_convolution",
     [] {
       return of_layer(
           Conv2DTranspose({.filters = 6, .kernel = 4, .strides = 2, .padding = Padding::same}));
     }},
    {"transposed_convolution_with_gaps",
     [] { return of_layer(Conv2DTranspose({.filters = 4, .kernel = 2, .strides = 3})); }},
    {"convolution_of_rows",
     [] {
       Network network({9, 3});
       network.add(Conv1D({.filters = 6, .kernel = 3, .padding = Padding::same}));
       network.add(ReLU());
       network.add(Conv1D({.filters = 4, .kernel = 2, .strides = 2}));
       return ended(std::move(network));
     }},
    {"convolution_relu",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 8, .kernel = 3}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"convolution_without_bias_relu",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 8, .kernel = 3, .use_bias = false}));
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"max_pooling", [] { return of_layer(MaxPool2D({.pool = 2})); }},
    {"max_pooling_that_overlaps",
     [] { return of_layer(MaxPool2D({.pool = 3, .strides = 2, .padding = Padding::symmetric})); }},
    {"average_pooling",
     [] { return of_layer(AveragePool2D({.pool = 2, .strides = 1, .padding = Padding::same})); }},
    {"global_average_pooling", [] { return of_layer(GlobalAveragePooling2D()); }},
    {"global_max_pooling",
     [] {
       return of_layer(GlobalMaxPooling2D(), {1, 2, 3});
     }},
    {"up_sampling",
     [] {
       return of_layer(UpSampling2D({.size = {3, 2}}));
     }},
    {"bilinear_up_sampling",
     [] {
       return of_layer(UpSampling2D({.size = {3, 2}, .interpolation = Interpolation::bilinear}));
     }},
    {"bilinear_up_sampling_of_whole_packs",
     [] {
       Network network = image_network({1, 3, 3});
       network.add(Conv2D({.filters = 8, .kernel = 1}));
       network.add(UpSampling2D({.size = {2, 5}, .interpolation = Interpolation::bilinear}));
       return ended(std::move(network));
     }},
    {"dropout", [] { return of_layer(Dropout({.rate = 0.3f})); }},
    {"batch_normalization", [] { return of_layer(BatchNormalization()); }},
    {"batch_normalization_relu",
     [] {
       Network network = image_network({6, 6, 3});
       network.add(Conv2D({.filters = 16, .kernel = 3, .use_bias = false}));
       network.add(BatchNormalization());
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"layer_normalization",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 16, .kernel = 1}));
       network.add(LayerNormalization());
       return ended(std::move(network));
     }},
    {"layer_normalization_of_long_rows",
     [] {
       Network network({9});
       network.add(Dense({.units = 301}));
       network.add(LayerNormalization());
       return ended(std::move(network));
     }},
    {"rms_normalization",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 16, .kernel = 1}));
       network.add(RMSNormalization());
       return ended(std::move(network));
     }},
    {"rms_normalization_of_long_rows",
     [] {
       Network network({9});
       network.add(Dense({.units = 301}));
       network.add(RMSNormalization());
       network.add(LayerNormalization());
       const std::vector<std::string> patterns = {"layer_normalization/*"};
       network.freeze(patterns);
       return ended(std::move(network));
     }},
    {"normalized_convolutions", normalized_convolutions},
    {"frozen",
     [] {
       Network network = normalized_convolutions();
       const std::vector<std::string> patterns = {"batch_normalization*", "conv2d_1/*",
                                                  "dense/kernel"};
       network.freeze(patterns);
       return network;
     }},
    {"addition",
     [] {
       Network network = image_network();
       const NodeId first =
           network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
       const NodeId second = network.add(Conv2D({.filters = 4, .kernel = 1}), {kInput});
       network.add(Add(), {first, second, first});
       return ended(std::move(network));
     }},
    {"addition_relu",
     [] {
       Network network = image_network();
       const NodeId first =
           network.add(Conv2D({.filters = 4, .kernel = 3, .padding = Padding::same}));
       network.add(BatchNormalization());
       network.add(Add(), {network.last(), first});
       network.add(ReLU());
       return ended(std::move(network));
     }},
    {"multiplication",
     [] {
       Network network = image_network();
       const NodeId first = network.add(Conv2D({.filters = 4, .kernel = 1}));
       const NodeId second = network.add(Conv2D({.filters = 4, .kernel = 1}), {kInput});
       network.add(Multiply(), {first, second, first});
       return ended(std::move(network));
     }},
    {"concatenation",  // of whole packs of channels, of rows, and of neither
     [] {
       Network network = image_network();
       const NodeId first = network.add(Conv2D({.filters = 8, .kernel = 1}));
       const NodeId joined = network.add(Concatenate(), {first, first});
       const NodeId rows = network.add(Concatenate({.axis = 1}), {joined, joined});
       const NodeId narrow = network.add(Conv2D({.filters = 3, .kernel = 1}));
       network.add(Concatenate(), {rows, narrow});
       return ended(std::move(network));
     }},
    {"permutation",
     [] {
       return of_layer(Permute({.dims = {3, 1, 2}}));
     }},
    {"permutation_of_pixels",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 8, .kernel = 1}));
       network.add(Permute({.dims = {2, 1, 3}}));
       network.add(Reshape({.shape = {35, 8}}));
       return ended(std::move(network));
     }},
    {"zero_padding",
     [] { return of_layer(ZeroPadding2D({.top = 1, .bottom = 2, .left = 0, .right = 3})); }},
    {"cropping",
     [] {
       Network network = image_network();
       network.add(Conv2D({.filters = 8, .kernel = 1}));
       network.add(Reshape({.shape = {35, 8}}));
       network.add(Cropping1D({.before = 3, .after = 5}));
       return ended(std::move(network));
     }},
    {"embedding",
     [] {
       Network network({{.name = "words", .shape = {6}, .type = ElementType::int32}});
       network.add(Embedding({.vocabulary = 7, .dimension = 8}));
       return ended(std::move(network));
     },
     {1, 3, 400}},
    {"attention",
     [] {
       Network network({9, 3});
       network.add(Conv1D({.filters = 3 * 2 * 5, .kernel = 1}));
       network.add(Attention({.heads = 2, .causal = true}));
       return ended(std::move(network));
     }},
    // Heads that cuDNN computes on a GPU, where it may round.
    {"attention_of_whole_packs",
     [] {
       Network network({70, 3});
       network.add(Conv1D({.filters = (4 + 2 * 2) * 16, .kernel = 1}));
       network.add(Attention({.heads = 4, .key_value_heads = 2, .causal = true}));
       return ended(std::move(network));
     }},
    {"attention_of_whole_packs_to_other_keys",
     [] {
       Network network({{.name = "queries", .shape = {5, 3}}, {.name = "keys", .shape = {67, 2}}});
       const NodeId queries =
           network.add(Conv1D({.filters = 2 * 64, .kernel = 1}), {network.input("queries")});
       const NodeId keys =
           network.add(Conv1D({.filters = 2 * 64, .kernel = 1}), {network.input("keys")});
       const NodeId values = network.add(Conv1D({.filters = 2 * 64, .kernel = 1}), {keys});
       network.add(Attention({.heads = 2}), {queries, keys, values});
       return ended(std::move(network));
     }},
    {"attention_in_segments",
     [] {
       Network network({{.name = "values", .shape = {70, 3}},
                        {.name = "segments", .shape = {70}, .type = ElementType::int32}});
       network.add(Conv1D({.filters = (4 + 2 * 2) * 6, .kernel = 1}), {kInput});
       network.add(Attention({.heads = 4, .key_value_heads = 2, .causal = true, .rotary = 100}),
                   {network.last(), network.input("segments")});
       return ended(std::move(network));
     }},
    {"attention_to_other_keys",
     [] {
       Network network({{.name = "queries", .shape = {5, 3}}, {.name = "keys", .shape = {67, 2}}});
       const NodeId queries =
           network.add(Conv1D({.filters = 2 * 33, .kernel = 1}), {network.input("queries")});
       const NodeId keys =
           network.add(Conv1D({.filters = 33, .kernel = 1}), {network.input("keys")});
       const NodeId values = network.add(Conv1D({.filters = 33, .kernel = 1}), {keys});
       network.add(Attention({.heads = 2, .key_value_heads = 1}), {queries, keys, values});
       return ended(std::move(network));
     }},
    {"additive_attention",
     [] {
       Network network({{.name = "queries", .shape = {5, 3}}, {.name = "keys", .shape = {67, 2}}});
       const NodeId queries =
           network.add(Conv1D({.filters = 33, .kernel = 1}), {network.input("queries")});
       const NodeId keys =
           network.add(Conv1D({.filters = 33, .kernel = 1}), {network.input("keys")});
       const NodeId values = network.add(Conv1D({.filters = 40, .kernel = 1}), {keys});
       network.add(AdditiveAttention(), {queries, keys, values});
       return ended(std::move(network));
     }},
    {"additive_attention_in_segments",
     [] {
       Network network({{.name = "values", .shape = {6, 3}},
                        {.name = "segments", .shape = {6}, .type = ElementType::int32}});
       const NodeId keys = network.add(Conv1D({.filters = 8, .kernel = 1}), {kInput});
       const NodeId queries = network.add(Cropping1D({.before = 1, .after = 2}), {keys});
       network.add(AdditiveAttention(), {queries, keys, keys, network.input("segments")});
       return ended(std::move(network));
     }},
    {"tied_dense",
     [] {
       Network network({{.name = "words", .shape = {6}, .type = ElementType::int32}});
       network.add(Embedding({.vocabulary = 7, .dimension = 8}));
       network.add(PositionalEmbedding());
       network.add(TiedDense({.to = "embedding", .use_bias = true}));
       network.add(ReLU());
       return ended(std::move(network));
     },
     {1, 3, 400}},
    {"sinusoidal_positions",
     [] {
       Network network({5, 3});
       network.add(Dense({.units = 7}));
       network.add(PositionalEmbedding({.kind = PositionalEmbedding::Kind::sinusoidal}));
       return ended(std::move(network));
     }},
    {"positions_of_a_larger_table",
     [] {
       Network network({5, 3});
       network.add(Dense({.units = 8}));
       network.add(PositionalEmbedding({.rows = 9}));
       network.add(PositionalEmbedding({.kind = PositionalEmbedding::Kind::constant, .rows = 2}));
       return ended(std::move(network));
     }},
    {"mean_of_positions",
     [] {
       Network network({70, 3});
       network.add(Dense({.units = 7}));
       network.add(GlobalAveragePooling1D());
       return ended(std::move(network));
     }},
    {"mean_of_positions_in_segments",
     [] {
       Network network({{.name = "values", .shape = {6, 3}},
                        {.name = "segments", .shape = {6}, .type = ElementType::int32}});
       network.add(Conv1D({.filters = 8, .kernel = 1}), {kInput});
       network.add(GlobalAveragePooling1D(), {network.last(), network.input("segments")});
       return ended(std::move(network));
     }},
    {"learned_positions",
     [] {
       Network network({5, 3});
       const NodeId rows = network.add(Dense({.units = 8}));
       network.add(PositionalEmbedding());
       network.add(Add(), {network.last(), rows});
       return ended(std::move(network));
       return ended(std::move(network));
     }},
    {"lstm",
     [] {
       return recurrent_network(LSTM({.units = 5, .return_sequences = true, .bidirectional = true}),
                                LSTM({.units = 8}));
     }},
    {"gru",
     [] {
       return recurrent_network(GRU({.units = 5, .return_sequences = true, .bidirectional = true}),
                                GRU({.units = 8}));
     }},
    {"simple_rnn",
     [] {
       return recurrent_network(SimpleRNN({.units = 7, .return_sequences = true}),
                                SimpleRNN({.units = 5, .go_backwards = true, .use_bias = false}));
     }},
    {"lstm_of_documents",
     [] {
       return recurrent_network_of_documents(LSTM({.units = 5,
                                                   .return_sequences = true,
                                                   .bidirectional = true,
                                                   .segments = true,
                                                   .initial_state = true}),
                                             LSTM({.units = 8, .segments = true}), 20);
     },
     {1, 3, 9}},
    {"gru_of_documents",
     [] {
       return recurrent_network_of_documents(
           GRU({.units = 5, .return_sequences = true, .segments = true, .initial_state = true}),
           GRU({.units = 4, .bidirectional = true, .segments = true}), 5);
     },
     {1, 3, 9}},
    {"simple_rnn_of_documents",
     [] {
       return recurrent_network_of_documents(
           SimpleRNN(
               {.units = 7, .return_sequences = true, .segments = true, .initial_state = true}),
           SimpleRNN({.units = 5, .go_backwards = true, .use_bias = false, .segments = true}), 7);
     },
     {1, 3, 9}},
    {"named_inputs_and_outputs",
     [] {
       Network network({{.name = "word", .shape = {}, .type = ElementType::int32},
                        {.name = "image", .shape = {7, 5, 3}},
                        {.name = "table", .shape = {4}}});
       network.add(Embedding({.vocabulary = 7, .dimension = 3}));
       const NodeId word = network.add(Dense({.units = 6}));
       network.add(Conv2D({.filters = 4, .kernel = 3}), {network.input("image")});
       network.add(ReLU());
       network.add(Flatten());
       const NodeId image = network.add(Dense({.units = 6}));
       const NodeId table = network.add(Dense({.units = 6}), {network.input("table")});
       const NodeId cut = network.add(ReLU());
       const NodeId sum = network.add(Add(), {word, image, cut});
       network.output("kind", network.add(Dense({.units = 5})));
       network.output("table", table);
       network.output("sum", sum);
       return network;
     }},
    {"cnn",
     [] {
       return zoo::cnn({12, 12, 1}, 5);
     }},
};

std::vector<AgreementCase> activation_cases() {
  std::vector<AgreementCase> cases;
  for (const LayerType& type : kLayerTypes) {
    if (!type.is_activation) continue;
    const std::string name(type.name);
    cases.push_back({name, [name] {
                       return network_from_json(R"({"input": [7, 5, 3], "layers": [
                           {"type": "conv2d", "filters": 4, "kernel": 1},
                           {"type": ")" + name + R"("},
                           {"type": "flatten"},
                           {"type": "dense", "units": 5}]})",
                                                name);
                     }});
  }
  return cases;
}

// Networks so deep that the rounding of one layer to 16 bits is amplified by the next, or that
// round themselves: compared in float32 alone.
const AgreementCase kDeepCases[] = {
    {"fake_quantize",
     [] {
       return network_from_json(R"({"input": [7, 5, 3], "layers": [
           {"type": "conv2d", "filters": 4, "kernel": 1},
           {"type": "fake_quantize", "scale": 0.01, "zero_point": 100, "dtype": "uint8"},
           {"type": "flatten"},
           {"type": "dense", "units": 5}]})",
                                "net.json");
     }},
    {"resnet18",
     [] {
       return zoo::resnet18({32, 32, 3}, 5, {.width = 4});
     },
     {5},
     3},
    {"resnet50_imagenet",
     [] {
       return zoo::resnet50({64, 64, 3}, 5, {.width = 2, .stem = zoo::Stem::imagenet});
     },
     {5},
     10},
};

using AgreementSetting = std::tuple<AgreementCase, Precision>;

class GpuAgreement : public testing::TestWithParam<AgreementSetting> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
  }

  static const AgreementCase& test_case() { return std::get<0>(GetParam()); }
  static ComputeOptions options() {
    return {.precision = std::get<1>(GetParam()), .deterministic = true};
  }
  static double tolerance() {
    switch (options().precision) {
      case Precision::float32:
        return 1e-4 * test_case().depth;
      case Precision::bfloat16:
        return 0.12;
      case Precision::float16:
        break;
    }
    return 0.03;
  }

  void expect_training_agrees(const ComputeOptions& options);
  double gradient_tolerance(const Data& data, const Loss& loss, const Values& gradients) const;

  std::vector<Data> batches() const {
    std::vector<Data> all;
    for (const std::int64_t samples : test_case().batches) all.emplace_back(*network_, samples);
    return all;
  }

  const Loss entropy_ = SparseCategoricalCrossentropy{.label_smoothing = 0.1f};
  std::shared_ptr<const Network> network_ = std::make_shared<const Network>(test_case().make());
};

// A deep network's gradient jumps where an activation changes its sign: then as much as it changes
// with parameters that differ by some roundings.
double GpuAgreement::gradient_tolerance(const Data& data, const Loss& loss,
                                        const Values& gradients) const {
  constexpr float kRoundings = 3e-6f;
  constexpr std::uint64_t kTimes = 5;
  double largest = tolerance();
  if (test_case().depth == 1) return largest;
  for (std::uint64_t seed = 1; seed <= kTimes; ++seed) {
    Side other(Device{}, network_, {});
    other.perturb(kRoundings, seed);
    other.model().train_batch(data.of(loss), data.context(), loss);
    largest = std::max(largest, error(other.gradients(), gradients));
  }
  return largest;
}

void GpuAgreement::expect_training_agrees(const ComputeOptions& options) {
  Side cpu(Device{}, network_, {});
  Side gpu(kGpu, network_, options);
  for (const Data& data : batches())
    for (const Loss& loss : {entropy_, Loss(MeanSquaredError{})}) {
      SCOPED_TRACE(to_string(loss) + " of " + std::to_string(data.samples));
      const MetricSums expected = cpu.model().train_batch(data.of(loss), data.context(), loss);
      const MetricSums sums = gpu.model().train_batch(data.of(loss), data.context(), loss);
      EXPECT_EQ(sums.samples, data.samples);
      EXPECT_EQ(sums.has_accuracy, expected.has_accuracy);
      EXPECT_NEAR(sums.loss_sum, expected.loss_sum, tolerance() * expected.loss_sum);
      if (options.precision == Precision::float32) {
        EXPECT_EQ(sums.correct, expected.correct);
        EXPECT_EQ(sums.correct_top5, expected.correct_top5);
      }
      EXPECT_LE(error(gpu.gradients(), cpu.gradients()),
                gradient_tolerance(data, loss, cpu.gradients()));
      EXPECT_LE(error(gpu.buffers(), cpu.buffers()), tolerance());
    }
}

TEST_P(GpuAgreement, TrainsAsTheCpuDoes) { expect_training_agrees(options()); }

TEST_P(GpuAgreement, PredictsAndEvaluatesAsTheCpuDoes) {
  Side cpu(Device{}, network_, {});
  Side gpu(kGpu, network_, options());
  for (const Data& data : batches()) {
    for (std::size_t k = 0; k < network_->outputs().size(); ++k) {
      const auto reference = cpu.model().predict_batch(data.of(entropy_), k);
      const auto outputs = gpu.model().predict_batch(data.of(entropy_), k);
      EXPECT_LE(error({outputs.begin(), outputs.end()}, {reference.begin(), reference.end()}),
                tolerance());
    }
    const double expected = cpu.model().evaluate_batch(data.of(entropy_), entropy_).loss_sum;
    EXPECT_NEAR(gpu.model().evaluate_batch(data.of(entropy_), entropy_).loss_sum, expected,
                tolerance() * expected);
  }
}

TEST_P(GpuAgreement, AddsUpMicroBatches) {
  if (!network_->buffers().entries().empty()) return;  // statistics are of a micro-batch
  Side gpu(kGpu, network_, options());
  for (const Data& data : batches()) {
    gpu.model().train_batch(data.of(entropy_), data.context(), entropy_);
    const Values whole = gpu.gradients();
    const std::int64_t half = data.samples / 2;
    gpu.model().train_batch(data.part(0, half), data.context(), entropy_);
    gpu.model().train_batch(data.part(half, data.samples - half), data.context(half), entropy_,
                            true);
    EXPECT_LE(error(gpu.gradients(), whole), tolerance()) << data.samples;
  }
}

TEST_P(GpuAgreement, GivesTheSameBitsTwice) {
  for (const Data& data : batches()) {
    const auto run = [&](bool staged) {
      Side gpu(kGpu, network_, options());
      const BatchView batch = data.of(entropy_);
      if (staged) gpu.model().stage(batch);
      gpu.model().load(batch, data.context(), entropy_, staged);
      gpu.model().train_loaded(data.samples, data.context(), entropy_);
      return gpu.gradients();
    };
    EXPECT_EQ(run(false), run(true));
  }
}

// Convolutions that also find the statistics of the normalization behind them, where cuDNN has an
// engine for the shape.
class GpuFusedStatistics : public GpuAgreement {};

TEST_P(GpuFusedStatistics, TrainAsTheCpuDoes) {
  expect_training_agrees(
      {.precision = options().precision, .fused_statistics = FusedStatistics::where_possible});
}

class GpuInput : public testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    if (!device::gpu_is_available()) GTEST_SKIP() << device::gpu_unavailable_reason();
    network_->add(Flatten());
    network_->add(Dense({.units = 5}));
  }

  /// Images whose pixels are all values in turn.
  static BatchView images(std::int64_t samples, std::size_t first) {
    static const std::vector<std::uint8_t> pixels = [] {
      std::vector<std::uint8_t> values(1024);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i);
      return values;
    }();
    static const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1};
    const auto count = static_cast<std::size_t>(samples);
    return {.samples = samples,
            .pixels = std::span(pixels).subspan(first, count * 21),
            .normalization = {.channels = 3,
                              .mean = {0.1f, 0.2f, 0.3f},
                              .deviation = {0.3f, 0.2f, 0.1f}},
            .targets = {.labels = std::span(labels).first(count)}};
  }
  static StepContext context(const BatchView& batch) { return {.global_samples = batch.samples}; }
  static Values train(Side& side, const BatchView& batch) {
    side.model().train_batch(batch, context(batch), kLoss);
    return side.gradients();
  }
  static Values train_staged(Side& side, const BatchView& batch) {
    side.model().load(batch, context(batch), kLoss, true);
    side.model().train_loaded(batch.samples, context(batch), kLoss);
    return side.gradients();
  }

  std::shared_ptr<Network> network_ = std::make_shared<Network>(Shape{1, 7, 3});
};

TEST_P(GpuInput, OfPixelsIsThatOfTheirFeatures) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  for (const std::int64_t samples : {1, 3, 12}) {
    const BatchView pixels = images(samples, 3);
    std::vector<float> features(pixels.pixels.size());
    pixels_to_features(pixels.pixels, pixels.normalization, features);
    const BatchView converted{.samples = samples, .features = features, .targets = pixels.targets};
    EXPECT_EQ(train(gpu, pixels), train(gpu, converted)) << samples;
    const auto predicted = gpu.model().predict_batch(pixels);
    const Values of_pixels(predicted.begin(), predicted.end());
    const auto expected = gpu.model().predict_batch(samples, features);
    EXPECT_EQ(of_pixels, Values(expected.begin(), expected.end())) << samples;
  }
}

TEST_P(GpuInput, ThatIsStagedIsTheSame) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  std::vector<BatchView> batches;
  for (const std::int64_t samples : {2, 12, 3, 3, 7})
    batches.push_back(images(samples, batches.size() * 5));
  std::vector<Values> expected;
  for (const BatchView& batch : batches) expected.push_back(train(gpu, batch));
  const BatchView other = images(12, 100);
  for (std::size_t i = 0; i < batches.size(); ++i) {
    gpu.model().stage(batches[i]);
    // What comes between finds another place, also twice.
    for (std::size_t between = 0; between < i % 3; ++between)
      gpu.model().evaluate_batch(other, kLoss);
    EXPECT_EQ(train_staged(gpu, batches[i]), expected[i]) << i;
  }
  gpu.model().stage(other);  // and is never used
  gpu.model().stage(batches[0]);
  EXPECT_EQ(train_staged(gpu, batches[0]), expected[0]);
}

/// Back and forth, since a GPU keeps what it did with the batch before.
TEST_P(GpuInput, OfMixedSamplesHasTheGradientsOfTheCpu) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  Side cpu(Device{}, network_, {});
  const std::vector<std::int32_t> partners = {4, 1, 0, 0, 2, 3, 3, 1, 2, 0, 4, 4};
  const std::vector<float> weights = {0.5f, 0.25f, 0,    1,    0.875f, 0.1f,
                                      0.9f, 0.5f,  0.5f, 0.3f, 0.7f,   0.2f};
  for (const bool mixed : {true, false, true})
    for (const std::int64_t samples : {12, 3}) {
      BatchView batch = images(samples, 3);
      const auto count = static_cast<std::size_t>(samples);
      if (mixed) batch.targets.partner_labels = std::span(partners).first(count);
      if (mixed) batch.targets.weights = std::span(weights).first(count);
      const Values expected = train(cpu, batch);
      EXPECT_LT(error(train(gpu, batch), expected), GetParam() == Precision::float32 ? 1e-5 : 2e-2)
          << mixed;
      const MetricSums of_gpu = gpu.model().train_batch(batch, context(batch), kLoss);
      const MetricSums of_cpu = cpu.model().train_batch(batch, context(batch), kLoss);
      EXPECT_NEAR(of_gpu.loss_sum, of_cpu.loss_sum, 1e-2 * of_cpu.loss_sum);
      gpu.model().stage(batch);
      EXPECT_EQ(train_staged(gpu, batch), train(gpu, batch)) << mixed;
    }
}

/// With and without weights of the samples, in turn.
TEST_P(GpuInput, OfTargetsAndWeightsHasTheLossOfTheCpu) {
  const bool is_exact = GetParam() == Precision::float32;
  const std::vector<float> weights = {0.5f, 2, 0, 1, 3, 0, 0, 0.25f, 1, 1, 2, 0.5f};
  std::vector<float> values = numbers(60, 6);
  std::vector<float> wide_values = numbers(12 * 601, 6);
  for (std::vector<float>* all : {&values, &wide_values})
    for (float& value : *all) value = (value + 1) / 2;
  auto wide = std::make_shared<Network>(*network_);
  wide->add(Dense({.units = 601}));
  auto one_output = std::make_shared<Network>(Shape{1, 7, 3});
  one_output->add(Flatten());
  one_output->add(Dense({.units = 1}));
  const std::vector<std::int32_t> two_classes = {0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0};
  struct Kind {
    Loss loss;
    std::shared_ptr<const Network> network;
    Targets targets;
  };
  std::vector<Kind> kinds;
  for (const std::string_view name : loss_names())
    if (is_exact || name != MeanAbsoluteError::kName)  // a sign depends on the last bit
      kinds.push_back({parse_loss(name), network_, {.values = values}});
  kinds.front().targets = images(12, 3).targets;
  kinds.push_back({CategoricalCrossentropy{0.1f}, network_, {.values = values}});
  kinds.push_back({kLoss, wide, images(12, 3).targets});
  kinds.push_back({CategoricalCrossentropy{0.1f}, wide, {.values = wide_values}});
  kinds.push_back({MeanSquaredError{}, wide, {.values = wide_values}});
  kinds.push_back({BinaryCrossentropy{0.1f}, one_output, {.labels = two_classes}});
  for (const auto& [loss, network, targets] : kinds) {
    SCOPED_TRACE(to_string(loss));
    Side gpu(kGpu, network, {.precision = GetParam()});
    Side cpu(Device{}, network, {});
    BatchView batch = images(12, 3);
    batch.targets = targets;
    for (const bool weighted : {false, true, false}) {
      batch.targets.sample_weights =
          weighted ? std::span<const float>(weights) : decltype(batch.targets.sample_weights)();
      const MetricSums of_gpu = gpu.model().train_batch(batch, context(batch), loss);
      const MetricSums of_cpu = cpu.model().train_batch(batch, context(batch), loss);
      EXPECT_NEAR(of_gpu.loss_sum, of_cpu.loss_sum, (is_exact ? 1e-5 : 2e-2) * of_cpu.loss_sum);
      EXPECT_EQ(of_gpu.weight_sum(), weighted ? 11.25 : 12);
      EXPECT_EQ(of_gpu.has_accuracy, of_cpu.has_accuracy);
      if (is_exact) {
        EXPECT_EQ(of_gpu.correct, of_cpu.correct);
      }
      EXPECT_LT(error(gpu.gradients(), cpu.gradients()), is_exact ? 1e-5 : 2e-2);
    }
  }
}

/// Masked and not, without weights, with those of samples and with those of labels, in turn.
TEST_P(GpuInput, OfLabelsAtPositionsHasTheLossOfTheCpu) {
  const bool is_exact = GetParam() == Precision::float32;
  const auto network = std::make_shared<Network>(Shape{7, 3});
  network->add(Conv1D({.filters = 5, .kernel = 1}));
  const std::vector<float> features = numbers(84, 3);  // 4 samples
  const std::vector<std::int32_t> all = labels(28, 5, 4);
  std::vector<std::int32_t> masked = all;
  for (const std::size_t at : {0U, 5U, 6U, 14U, 15U, 16U, 17U, 18U, 19U, 20U, 27U})
    masked[at] = kMasked;
  const std::vector<float> of_samples = {0.5f, 2, 1, 0};
  std::vector<float> of_labels = numbers(28, 5);
  for (float& weight : of_labels) weight = (weight + 1) / 2;
  Side gpu(kGpu, network, {.precision = GetParam()});
  Side cpu(Device{}, network, {});
  for (const Loss& loss : {kLoss, Loss(SparseCategoricalCrossentropy{0.1f})})
    for (const bool is_masked : {false, true, false})
      for (const std::vector<float>& weights : {std::vector<float>(), of_samples, of_labels}) {
        const BatchView batch{
            .samples = 4,
            .features = features,
            .targets = {.labels = is_masked ? masked : all, .sample_weights = weights}};
        const MetricSums of_gpu = gpu.model().train_batch(batch, context(batch), loss);
        const MetricSums of_cpu = cpu.model().train_batch(batch, context(batch), loss);
        EXPECT_NEAR(of_gpu.loss_sum, of_cpu.loss_sum, (is_exact ? 1e-5 : 2e-2) * of_cpu.loss_sum);
        EXPECT_EQ(of_gpu.samples, 4);
        EXPECT_EQ(of_gpu.more_positions, 24);
        EXPECT_EQ(of_gpu.masked, is_masked ? 11 : 0);
        EXPECT_NEAR(of_gpu.weight_sum(), of_cpu.weight_sum(), 1e-12);
        if (is_exact) {
          EXPECT_EQ(of_gpu.correct, of_cpu.correct);
          EXPECT_EQ(of_gpu.correct_top5, of_cpu.correct_top5);
        }
        EXPECT_LT(error(gpu.gradients(), cpu.gradients()), is_exact ? 1e-5 : 2e-2);
      }
}

/// The logits of some rows at a time: two blocks of 64, and one of 26.
TEST_P(GpuInput, OfLogitsInBlocksHasTheLossOfTheCpu) {
  const bool is_exact = GetParam() == Precision::float32;
  const std::vector<std::int32_t> all = labels(154, 5, 4);
  std::vector<std::int32_t> masked = all;
  for (const std::size_t at : {0U, 63U, 64U, 65U, 128U, 153U}) masked[at] = kMasked;
  std::vector<float> of_samples = numbers(22, 6);
  std::vector<float> of_labels = numbers(154, 5);
  for (std::vector<float>* weights : {&of_samples, &of_labels})
    for (float& weight : *weights) weight = std::max(weight, 0.0f);
  struct Head {
    bool tied;
    std::int64_t words;
  };
  for (const auto& [tied, words_known] : {Head{false, 5}, Head{true, 5}, Head{true, 601}}) {
    SCOPED_TRACE(words_known);
    Network network({{.name = "words", .shape = {7}, .type = ElementType::int32}});
    network.add(Embedding({.vocabulary = words_known, .dimension = 8}));
    network.add(Dense({.units = 8}));
    network.add(Tanh());
    if (tied)
      network.add(TiedDense({.to = "embedding"}));
    else
      network.add(Dense({.units = words_known}));
    const auto shared = std::make_shared<const Network>(std::move(network));
    Side gpu(kGpu, shared, {.precision = GetParam(), .logits_bytes = 1});
    Side cpu(Device{}, shared, {});
    const std::vector<std::int32_t> words = labels(154, 5, 3);
    for (const Loss& loss : {kLoss, Loss(SparseCategoricalCrossentropy{0.1f})})
      for (const std::vector<float>& weights : {std::vector<float>(), of_samples, of_labels}) {
        const BatchView batch{.samples = 22,
                              .indices = words,
                              .targets = {.labels = masked, .sample_weights = weights}};
        const StepContext scaled{.global_samples = 25, .loss_scale = 16};
        const MetricSums of_gpu = gpu.model().train_batch(batch, scaled, loss);
        const MetricSums of_cpu = cpu.model().train_batch(batch, scaled, loss);
        EXPECT_NEAR(of_gpu.loss_sum, of_cpu.loss_sum, (is_exact ? 1e-5 : 2e-2) * of_cpu.loss_sum);
        EXPECT_EQ(of_gpu.samples, 22);
        EXPECT_EQ(of_gpu.more_positions, 132);
        EXPECT_EQ(of_gpu.masked, 6);
        EXPECT_NEAR(of_gpu.weight_sum(), of_cpu.weight_sum(), 1e-12);
        if (is_exact) {
          EXPECT_EQ(of_gpu.correct, of_cpu.correct);
        }
        EXPECT_LT(error(gpu.gradients(), cpu.gradients()), is_exact ? 1e-5 : 3e-2);
      }
  }
}

/// A term with several positions beside one with a single one: each is a mean of its own.
TEST_P(GpuInput, OfPositionsBesideSamplesHasTheGradientsOfTheCpu) {
  const auto network = std::make_shared<Network>(Shape{7, 3});
  const NodeId rows = network->add(Conv1D({.filters = 5, .kernel = 1}));
  network->output("rows", rows);
  network->add(Flatten());
  network->output("whole", network->add(Dense({.units = 4})));
  const std::vector<float> features = numbers(63, 3);  // 3 samples
  std::vector<std::int32_t> at_positions = labels(21, 5, 4);
  at_positions[3] = at_positions[20] = kMasked;
  const std::vector<std::int32_t> of_samples = {2, 0, 3};
  for (const bool rows_first : {true, false}) {
    const LossTerm of_rows{.loss = kLoss, .output = 0, .weight = 0.5f};
    const LossTerm of_whole{.loss = kLoss, .output = 1, .weight = 2};
    const TotalLoss loss(rows_first ? std::vector{of_rows, of_whole}
                                    : std::vector{of_whole, of_rows});
    const Targets more = {.labels = rows_first ? of_samples : at_positions};
    const BatchView batch{.samples = 3,
                          .features = features,
                          .targets = {.labels = rows_first ? at_positions : of_samples},
                          .more_targets = std::span(&more, 1)};
    Side gpu(kGpu, network, {.precision = GetParam()});
    Side cpu(Device{}, network, {});
    const MetricSums of_gpu = gpu.model().train_batch(batch, context(batch), loss);
    const MetricSums of_cpu = cpu.model().train_batch(batch, context(batch), loss);
    const double tolerance = GetParam() == Precision::float32 ? 1e-5 : 2e-2;
    EXPECT_NEAR(of_gpu.loss_sum, of_cpu.loss_sum, tolerance * of_cpu.loss_sum);
    EXPECT_EQ(of_gpu.positions(), rows_first ? 19 : 3);
    EXPECT_LT(error(gpu.gradients(), cpu.gradients()), tolerance);
  }
}

/// What was recorded for samples of one kind must not be done again for those of the other.
TEST_P(GpuInput, OfAnotherKindIsAnotherPlacement) {
  Side gpu(kGpu, network_, {.precision = GetParam()});
  const BatchView plain = images(3, 3);
  BatchView mixed = plain;
  const std::vector<std::int32_t> partners = {4, 1, 0};
  const std::vector<float> weights = {0.5f, 0.25f, 0};
  mixed.targets.partner_labels = partners;
  mixed.targets.weights = weights;
  train(gpu, mixed);  // makes room
  train(gpu, plain);
  const std::uint64_t of_plain = gpu.model().placement();
  train(gpu, plain);
  EXPECT_EQ(gpu.model().placement(), of_plain);
  train(gpu, mixed);
  std::uint64_t of_mixed = gpu.model().placement();
  EXPECT_NE(of_mixed, of_plain);
  BatchView weighted = mixed;
  weighted.targets.sample_weights = weights;
  train(gpu, weighted);
  EXPECT_NE(gpu.model().placement(), of_mixed);
  train(gpu, mixed);
  of_mixed = gpu.model().placement();
  gpu.model().evaluate_batch(plain, kLoss);  // between epochs
  train(gpu, mixed);
  EXPECT_EQ(gpu.model().placement(), of_mixed);
}

INSTANTIATE_TEST_SUITE_P(Types, GpuInput,
                         testing::Values(Precision::float32, Precision::bfloat16,
                                         Precision::float16),
                         [](const auto& test) { return to_string(test.param); });

std::string name_of_agreement(const testing::TestParamInfo<AgreementSetting>& test) {
  return std::get<0>(test.param).name + "_" + to_string(std::get<1>(test.param));
}

INSTANTIATE_TEST_SUITE_P(Layers, GpuAgreement,
                         testing::Combine(testing::ValuesIn(kAgreementCases),
                                          testing::Values(Precision::float32, Precision::bfloat16,
                                                          Precision::float16)),
                         name_of_agreement);
INSTANTIATE_TEST_SUITE_P(Activations, GpuAgreement,
                         testing::Combine(testing::ValuesIn(activation_cases()),
                                          testing::Values(Precision::float32, Precision::bfloat16,
                                                          Precision::float16)),
                         name_of_agreement);
INSTANTIATE_TEST_SUITE_P(Layers, GpuFusedStatistics,
                         testing::Combine(testing::Values(AgreementCase{"normalized_convolutions",
                                                                        normalized_convolutions}),
                                          testing::Values(Precision::bfloat16, Precision::float16)),
                         name_of_agreement);
INSTANTIATE_TEST_SUITE_P(Networks, GpuAgreement,
                         testing::Combine(testing::ValuesIn(kDeepCases),
                                          testing::Values(Precision::float32)),
                         name_of_agreement);

}  // namespace
}  // namespace lockstep::model
