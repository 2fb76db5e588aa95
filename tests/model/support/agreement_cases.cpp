#include "tests/model/support/agreement_cases.h"

#include <memory>
#include <utility>

#include "lockstep/model/layers/layers.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::model {
namespace {

Network image_network(Shape shape = {7, 5, 3}) { return Network(std::move(shape)); }

Network ended(Network network) {
  if (network.output_shape().size() > 1) network.add(Flatten());
  network.add(Dense({.units = 5}));
  return network;
}

template <typename L>
Network layer_network(L layer, Shape shape = {7, 5, 3}) {
  Network network = image_network(std::move(shape));
  network.add(Conv2D({.filters = 4, .kernel = 1}));  // makes the layer compute an input gradient
  network.add(std::move(layer));
  return ended(std::move(network));
}

// Adds a layer in front, so that the next one computes an input gradient.
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

}  // namespace

// Convolutions as in residual blocks, with unaligned numbers of filters and one-sided padding.
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

std::vector<AgreementCase> layer_cases() {
  return {
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
      {"convolution", [] { return layer_network(Conv2D({.filters = 6, .kernel = 3})); }},
      {"convolution_same",
       [] { return layer_network(Conv2D({.filters = 5, .kernel = 3, .padding = Padding::same})); }},
      {"convolution_with_uneven_zeros",
       [] {
         return layer_network(
             Conv2D({.filters = 5, .kernel = 4, .strides = 2, .padding = Padding::same}));
       }},
      {"convolution_in_groups",
       [] {
         return layer_network(Conv2D({.filters = 6,
                                      .kernel = 3,
                                      .strides = 2,
                                      .padding = Padding::symmetric,
                                      .groups = 2}));
       }},
      {"depthwise_convolution",
       [] { return layer_network(DepthwiseConv2D({.strides = 2, .depth_multiplier = 2})); }},
      {"transposed_convolution",
       [] {
         return layer_network(
             Conv2DTranspose({.filters = 6, .kernel = 4, .strides = 2, .padding = Padding::same}));
       }},
      {"transposed_convolution_with_gaps",
       [] { return layer_network(Conv2DTranspose({.filters = 4, .kernel = 2, .strides = 3})); }},
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
      {"max_pooling", [] { return layer_network(MaxPool2D({.pool = 2})); }},
      {"max_pooling_that_overlaps",
       [] {
         return layer_network(MaxPool2D({.pool = 3, .strides = 2, .padding = Padding::symmetric}));
       }},
      {"average_pooling",
       [] {
         return layer_network(AveragePool2D({.pool = 2, .strides = 1, .padding = Padding::same}));
       }},
      {"global_average_pooling", [] { return layer_network(GlobalAveragePooling2D()); }},
      {"global_max_pooling",
       [] {
         return layer_network(GlobalMaxPooling2D(), {1, 2, 3});
       }},
      {"up_sampling",
       [] {
         return layer_network(UpSampling2D({.size = {3, 2}}));
       }},
      {"bilinear_up_sampling",
       [] {
         return layer_network(
             UpSampling2D({.size = {3, 2}, .interpolation = Interpolation::bilinear}));
       }},
      {"bilinear_up_sampling_of_whole_packs",
       [] {
         Network network = image_network({1, 3, 3});
         network.add(Conv2D({.filters = 8, .kernel = 1}));
         network.add(UpSampling2D({.size = {2, 5}, .interpolation = Interpolation::bilinear}));
         return ended(std::move(network));
       }},
      {"dilated_convolution",
       [] {
         return layer_network(Conv2D({.filters = 6, .dilation = 2, .padding = Padding::same}));
       }},
      {"dilated_convolution_of_rows",
       [] {
         Network network({9, 3});
         network.add(Conv1D({.filters = 6, .dilation = 3}));
         network.add(Conv1D({.filters = 4, .kernel = 2, .dilation = 2}));
         return ended(std::move(network));
       }},
      {"group_normalization",
       [] {
         Network network = image_network();
         network.add(Conv2D({.filters = 70, .kernel = 1}));
         network.add(GroupNormalization({.groups = 5}));
         return ended(std::move(network));
       }},
      {"instance_normalization_without_weights",
       [] {
         return layer_network(GroupNormalization({.groups = 4, .scale = false, .center = false}));
       }},
      {"scale", [] { return layer_network(Scale()); }},
      {"scale_without_bias", [] { return layer_network(Scale({.use_bias = false})); }},
      {"bias_of_channels", [] { return layer_network(Scale({.use_scale = false})); }},
      {"product_with_channels",
       [] {
         Network network = image_network();
         const NodeId image = network.add(Conv2D({.filters = 40, .kernel = 1}));
         network.add(GlobalAveragePooling2D());
         network.add(Dense({.units = 40}));
         const NodeId weights = network.add(Reshape({.shape = {1, 1, 40}}));
         network.add(Multiply(), {image, weights});
         return ended(std::move(network));
       }},
      {"product_with_positions",
       [] {
         Network network = image_network();
         const NodeId image = network.add(Conv2D({.filters = 4, .kernel = 1}));
         const NodeId weights = network.add(Conv2D({.filters = 1, .kernel = 1}));
         network.add(Multiply(), {weights, image});
         return ended(std::move(network));
       }},
      {"products_of_matrices",
       [] {
         Network network({3, 4, 6});
         const NodeId left = network.add(Dense({.units = 5}), {kInput});
         const NodeId right = network.add(Dense({.units = 5}), {kInput});
         const NodeId scores = network.add(MatMul({.transpose_b = true}), {left, right});
         network.add(MatMul(), {network.add(Softmax(), {scores}), right});
         return ended(std::move(network));
       }},
      {"activations",
       [] {
         Network network({40});
         network.add(Dense({.units = 31}));
         network.add(ELU({.alpha = 0.5f}));
         network.add(SELU());
         network.add(Softplus());
         network.add(Rescaling({.scale = 3, .offset = -2}));
         network.add(Mish());
         network.add(HardSwish());
         network.add(Softsign());
         network.add(HardSigmoid({.slope = 0.4f}));
         network.add(SiLU({.beta = 1.702f}));
         network.add(HardTanh({.min_value = 0, .max_value = 0.6f}));
         return ended(std::move(network));
       }},
      {"dropout", [] { return layer_network(Dropout({.rate = 0.3f})); }},
      {"batch_normalization", [] { return layer_network(BatchNormalization()); }},
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
      {"concatenation",  // whole packs of channels, of rows, and neither
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
         return layer_network(Permute({.dims = {3, 1, 2}}));
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
       [] { return layer_network(ZeroPadding2D({.top = 1, .bottom = 2, .left = 0, .right = 3})); }},
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
      // Heads that cuDNN computes on a GPU, if rounding is allowed.
      {"attention_of_whole_packs",
       [] {
         Network network({70, 3});
         network.add(Conv1D({.filters = (4 + 2 * 2) * 16, .kernel = 1}));
         network.add(Attention({.heads = 4, .key_value_heads = 2, .causal = true}));
         return ended(std::move(network));
       }},
      {"attention_of_whole_packs_to_other_keys",
       [] {
         Network network(
             {{.name = "queries", .shape = {5, 3}}, {.name = "keys", .shape = {67, 2}}});
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
         Network network(
             {{.name = "queries", .shape = {5, 3}}, {.name = "keys", .shape = {67, 2}}});
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
         Network network(
             {{.name = "queries", .shape = {5, 3}}, {.name = "keys", .shape = {67, 2}}});
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
         return recurrent_network(
             LSTM({.units = 5, .return_sequences = true, .bidirectional = true}),
             LSTM({.units = 8, .recurrent_bias = true}));
       }},
      {"gru",
       [] {
         return recurrent_network(
             GRU({.units = 5, .return_sequences = true, .bidirectional = true}), GRU({.units = 8}));
       }},
      {"simple_rnn",
       [] {
         return recurrent_network(
             SimpleRNN({.units = 7, .return_sequences = true, .recurrent_bias = true}),
             SimpleRNN({.units = 5, .go_backwards = true, .use_bias = false}));
       }},
      {"lstm_of_documents",
       [] {
         return recurrent_network_of_documents(
             LSTM({.units = 5,
                   .return_sequences = true,
                   .bidirectional = true,
                   .segments = true,
                   .initial_state = true}),
             LSTM({.units = 8, .recurrent_bias = true, .segments = true}), 20);
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
}

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

std::vector<AgreementCase> deep_cases() {
  return {
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
}

}  // namespace lockstep::inline v0::model
