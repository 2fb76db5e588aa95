// Ready-made networks, including residual networks (He et al., "Deep residual learning for image
// recognition", CVPR 2016).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network/network.h"

namespace lockstep::inline v0::zoo {

/// The first layers of a residual network.
enum class Stem {
  cifar,     ///< a 3x3 convolution of stride 1, for inputs up to 64x64
  imagenet,  ///< a 7x7 convolution of stride 2, then 3x3 max pooling of stride 2
};

/// The default stem for samples of this shape: cifar up to 64x64.
Stem stem_for(const model::Shape& input);

/// Options of the residual networks.
struct ResNetOptions {
  /// filters of the first stage; each of the three following stages doubles them
  std::int64_t width = 64;
  /// Default: cifar for inputs up to 64x64, otherwise imagenet.
  std::optional<Stem> stem = std::nullopt;
  /// Start every block as the identity (Goyal et al., arXiv 1706.02677, section 5.1).
  bool zero_last_gamma = false;
};

/// Structure and names follow torchvision ("layer1.0.conv1"), so weights convert in both directions
/// by renaming and transposing. In blocks of three convolutions, the 3x3 convolution has the stride
/// (the "v1.5" form). Convolutions have no bias and use He-normal initialization with fan-in
/// (torchvision: fan-out; for most layers the two are equal). Batch normalization: momentum 0.9,
/// epsilon 1e-5. `input` is [height, width, channels]. For [224, 224, 3] and 1000 classes they have
/// 11,689,512, 21,797,672, 25,557,032, 44,549,160 and 60,192,808 parameters.
model::Network resnet18(model::Shape input, std::int64_t classes,
                        const ResNetOptions& options = {});
model::Network resnet34(model::Shape input, std::int64_t classes,
                        const ResNetOptions& options = {});
model::Network resnet50(model::Shape input, std::int64_t classes,
                        const ResNetOptions& options = {});
model::Network resnet101(model::Shape input, std::int64_t classes,
                         const ResNetOptions& options = {});
model::Network resnet152(model::Shape input, std::int64_t classes,
                         const ResNetOptions& options = {});

/// Options of mobilenet_v2().
struct MobileNetOptions {
  double width = 1;  ///< factor on the numbers of filters, which are rounded to multiples of 8
  /// Default: cifar for inputs up to 64x64, otherwise imagenet.
  std::optional<Stem> stem = std::nullopt;
};

/// Inverted residuals with linear bottlenecks (Sandler et al., "MobileNetV2", CVPR 2018). Structure
/// and names follow torchvision ("features.1.conv.0.0"), whose weights convert by renaming and
/// transposing. For small images (Stem::cifar), the first convolution and the second stage have
/// stride 1, so that 32x32 shrinks to 4x4. Initialization and normalization are those of the
/// residual networks. It has 3,504,872 parameters for [224, 224, 3] and 1000 classes.
model::Network mobilenet_v2(model::Shape input, std::int64_t classes,
                            const MobileNetOptions& options = {});

// A wide, shallow network that learns CIFAR-10 in few epochs.

/// Options of fast_cifar().
struct FastCifarOptions {
  /// Filters of the first block; the second and third blocks have four times as many.
  std::int64_t width = 64;
};

/// Based on the published speed-run networks for CIFAR-10: Page, "How to train your ResNet"
/// (myrtle.ai, 2018), whose residual connections later networks dropped, and Jordan, "94% on
/// CIFAR-10 in 3.29 seconds on a single GPU" (arXiv 2404.00498), whose sizes are used here. A 2x2
/// convolution to 24 channels, then three blocks of 64, 256 and 256 filters: 3x3 convolution, 2x2
/// max pooling, normalization, activation, 3x3 convolution, normalization, activation. Then the
/// maximum of each channel and one dense layer. Differences from the paper: the first convolution
/// is trained (there it whitens patches of the data), activations are ReLU (GELU), normalization
/// has a scale, kernels use He-normal initialization (partial identities) and logits are not
/// scaled. The moving statistics adapt quickly (momentum 0.6), for trainings of a few hundred
/// steps.
///
/// `input` is [height, width, channels], at least 16x16. It has 1,972,802 parameters for [32, 32,
/// 3] and 10 classes.
model::Network fast_cifar(model::Shape input, std::int64_t classes,
                          const FastCifarOptions& options = {});

// All networks end in one output per class: logits without a softmax, as the cross-entropy loss
// expects.

/// One dense layer on the flattened input: softmax regression.
model::Network linear(model::Shape input, std::int64_t classes);

/// Dense layers of the sizes `hidden` on the flattened input, each followed by a ReLU and, with
/// `dropout` above 0, dropout of that rate, then one of `classes`. The name is that for make():
/// "mlp", or "mlp:10,10,dropout=0.2" for other hidden layers and dropout.
model::Network mlp(model::Shape input, std::int64_t classes,
                   const std::vector<std::int64_t>& hidden = {128, 128}, float dropout = 0);

/// Two 3x3 convolutions (32 and 64 filters, valid) with ReLU and 2x2 max pooling, a dense layer of
/// 128 with ReLU, and one of `classes`. It has 225,034 parameters for [28, 28, 1] and 10 classes.
/// The image must be at least 10x10.
model::Network cnn(model::Shape input, std::int64_t classes);

/// `network` without its head (the last layer with parameters) and the layers after it. The output
/// is the input of the head, [features]. Layers and parameters keep their names. Throws Error
/// (input) unless the head reads the output of the layer before it, and others with parameters
/// precede it.
model::Network features_of(const model::Network& network);

/// An input of the data, for networks that read several.
struct DataInput {
  model::NetworkInput input;    ///< its name, shape and type
  std::int64_t categories = 0;  ///< range of an int32 input: 0 to categories - 1
};

/// Options of wide_deep().
struct WideDeepOptions {
  std::vector<std::int64_t> hidden = {128, 128};  ///< sizes of the hidden layers of the deep part
  std::int64_t embedding = 8;                     ///< dimension of each embedding
};

/// Wide and deep network for tables (Cheng et al., arXiv 1606.07792): the sum of a linear model of
/// all inputs and of an mlp, which reads floats directly and categories (int32, one number per
/// sample) through an embedding for each input. In the linear model, a category has a trained
/// weight per class. The name is that for make(): "wide_deep", or "wide_deep:256x128,embedding=16"
/// with options. Throws Error (input) for other inputs.
model::Network wide_deep(std::span<const DataInput> inputs, std::int64_t classes,
                         const WideDeepOptions& options = {});

/// Options of lstm().
struct LstmOptions {
  std::int64_t layers = 2;       ///< number of LSTM layers
  std::int64_t units = 128;      ///< units per layer
  std::int64_t embedding = 128;  ///< dimension of the embedding
  /// Output [positions, classes], as for a language model, instead of [classes] for the last
  /// position.
  bool return_sequences = false;
};

/// LSTM layers, and one dense layer that reads the last output of the last LSTM, or all of its
/// outputs. The input is [positions, features], where further axes are features too (the rows of an
/// image), or int32 [positions] of known categories, such as words, which are embedded. The
/// optional second input are segments, int32 [positions]: the document of each position, from 1, or
/// 0 for padding (RecurrentOptions). The name is that for make(): "lstm", or
/// "lstm:1x256,embedding=64,return_sequences" with options. Throws Error (input) for other inputs.
model::Network lstm(std::span<const DataInput> inputs, std::int64_t classes,
                    const LstmOptions& options = {});

/// The feed-forward part of a transformer block.
enum class FeedForward {
  gelu,
  /// silu(gate) * input of two dense layers (Shazeer, arXiv 2002.05202). Their size is 8 / 3 of the
  /// width, rounded up to a multiple of 8, instead of 4 times the width, for about the same number
  /// of parameters.
  swiglu,
};

/// Options of gpt(), bert(), minilm() and vit(). The defaults are those of the smallest published
/// gpt(), bert() and vit().
struct TransformerOptions {
  std::int64_t layers = 12;  ///< blocks
  std::int64_t width = 768;  ///< elements per position
  /// Heads of the attention, each of width / heads elements. 0: the largest number that divides the
  /// width into heads of at least 64 elements (32 for minilm()).
  std::int64_t heads = 0;
  float dropout = 0;  ///< rate after the embedding and in each residual
  /// Side of the square patches of vit(). 0: 4 for images up to 64x64, else 16.
  std::int64_t patch = 0;
  /// For vit() only: the classifier reads a trained position before the patches, as in Dosovitskiy
  /// et al., instead of the mean of all patches.
  bool class_token = false;
  FeedForward feed_forward = FeedForward::gelu;  ///< for gpt() only
};

// The first input of a transformer are tokens, int32 [T] with `categories`, its vocabulary. The
// optional second input are segments, int32 [T]: the document of each position, from 1, or 0 for
// padding. Positions attend to their own document. T is the maximum length of a text.

/// A language model: tokens [T] to logits [T, vocabulary] of the token after each position (Radford
/// et al., "Language models are unsupervised multitask learners", 2019). Structure, names
/// ("h.0.attn.c_attn") and initialization are those of GPT-2: normalization before each residual,
/// learned positions, a hidden layer of 4 * width with GELU, and the embedding as the last kernel.
/// It has vocabulary * width + T * width + layers * (12 * width^2 + 13 * width) + 2 * width
/// parameters: 124,439,808 for 12 layers of 768, a vocabulary of 50257 and T = 1024. With
/// FeedForward::swiglu of H units, "h.0.mlp.c_gate" is the layer of the gates, and the parameters
/// of a layer are 4 * width^2 + 9 * width + 3 * width * H + 2 * H. The name is that for make(),
/// such as "gpt:4x128". Throws Error (input) for other inputs.
model::Network gpt(std::span<const DataInput> inputs, const TransformerOptions& options = {});

/// A classifier of texts: tokens [T] to [classes] (Devlin et al., "BERT", arXiv 1810.04805).
/// Structure and names ("encoder.layer.0.attention.self.query") are those of Hugging Face's BERT,
/// with two token types, of which all tokens have the first: normalization after each residual; the
/// classifier reads the first position through a dense layer with tanh. It has (vocabulary + T + 2
/// + 2) * width + layers * (12 * width^2 + 13 * width) + width^2 + width + (width + 1) * classes
/// parameters. The name is that for make(), such as "bert:4x128". Throws Error (input) for other
/// inputs.
model::Network bert(std::span<const DataInput> inputs, std::int64_t classes,
                    const TransformerOptions& options = {});

/// Options of minilm() with its published sizes.
inline constexpr TransformerOptions kMiniLm = {.layers = 6, .width = 384};

/// A classifier of text embeddings, the mean of all positions that are not padding (Wang et al.,
/// "MiniLM", arXiv 2002.10957; Reimers and Gurevych, "Sentence-BERT", arXiv 1908.10084): bert()
/// with 512 learned positions, of which the first T are used, and without its pooler, so that
/// weights of all-MiniLM-L6-v2 fit. T is at most 512. features_of() outputs the embedding [width].
/// It has (vocabulary + 512 + 2 + 2) * width + layers * (12 * width^2 + 13 * width) + (width + 1) *
/// classes parameters. The name is that for make(), such as "minilm:6x384". Throws Error (input)
/// for other inputs.
model::Network minilm(std::span<const DataInput> inputs, std::int64_t classes,
                      const TransformerOptions& options = kMiniLm);

/// Options of seq2seq().
struct Seq2SeqOptions {
  std::int64_t layers = 1;     ///< layers of the encoder, and of the decoder
  std::int64_t units = 256;    ///< units per layer
  std::int64_t embedding = 0;  ///< dimension of both embeddings; 0: `units`
  float dropout = 0;           ///< rate after the embeddings, and before the last layer
};

/// Translates texts: "source" [S], optional "source_segments" [S] and "tokens" [T], all int32, to
/// logits [T, vocabulary] of the token after each position (see data::TextTableSource). An encoder
/// of LSTM layers reads the source. A decoder of LSTM layers reads the tokens; each starts from
/// tanh of a dense layer of the mean of the encoder's outputs (Sennrich et al., "Nematus", arXiv
/// 1703.04357). Its outputs attend to those of the encoder (additive attention, Bahdanau et al.,
/// arXiv 1409.0473), and the last layer reads tanh of a dense layer of both (Luong et al., arXiv
/// 1508.04025). Names: "encoder.lstm.0", "decoder.lstm.0", "decoder.initial.0", "attention.query".
/// The name is that for make(), such as "seq2seq:1x256". Throws Error (input) for other inputs.
model::Network seq2seq(std::span<const DataInput> inputs, const Seq2SeqOptions& options = {});

/// A vision transformer, whose positions are square patches (Dosovitskiy et al., arXiv 2010.11929):
/// a strided convolution, learned positions, blocks that normalize before each residual, and the
/// mean of all positions (Beyer et al., arXiv 2205.01580), or the class token. Names
/// ("blocks.0.attn.qkv") follow timm; the class token is row 0 of the positions. With N patches of
/// side P and C channels, it has (P^2 * C + 1 + N) * width + layers * (12 * width^2 + 13 * width) +
/// 2 * width + (width + 1) * classes parameters, and with a class token `width` more.
/// `input` is [height, width, channels], multiples of P. The name is that for make(), such as
/// "vit:6x192,patch=8".
model::Network vit(model::Shape input, std::int64_t classes,
                   const TransformerOptions& options = {});

/// Options of caption().
struct CaptionOptions {
  std::int64_t width = 512;  ///< elements of an embedding, and units of the LSTM
  float dropout = 0;         ///< rate before and after the LSTM
  /// The name, for make(), of the network that extracts the features of the image. Default: cnn for
  /// images up to 64x64, otherwise resnet18.
  std::string cnn = {};
};

/// Captions of images: an image [H, W, C] and tokens [T] to logits [T, vocabulary] of the token
/// after each position (Vinyals et al., "Show and tell", arXiv 1411.4555). An LSTM reads the
/// features of the image, through a dense layer, and then the embeddings of the tokens. A dense
/// layer maps its outputs at the tokens' positions to the logits. `inputs` are the image and the
/// tokens, int32 [T] with `categories`, in either order. The layers of the cnn keep their names, so
/// that its weights fit. In addition to them, it has (features + 1 + vocabulary) * width + 8 *
/// width^2 + 4 * width + (width + 1) * vocabulary parameters. The name is that for make(), such as
/// "caption:256,dropout=0.3,cnn=mobilenet_v2". Throws Error (input) for other inputs.
model::Network caption(std::span<const DataInput> inputs, const CaptionOptions& options = {});

/// Creates the network `name`: one of names(), an mlp with other hidden layers or dropout,
/// "mlp:10,10,dropout=0.2", a mobilenet_v2 of another width, "mobilenet_v2:0.5", a wide_deep or
/// lstm with options, a gpt, bert, minilm, seq2seq or vit of another size, "gpt:4x128",
/// "gpt:4x128x2,dropout=0.1,ffn=swiglu", or a caption of another width or cnn. "resnet50:features",
/// or "mlp:10,10,features", leaves out the head, as features_of() does, and ignores `classes`.
/// Throws Error (input) for an unknown name.
///
///     model::Network network = zoo::make("resnet50:features", {224, 224, 3}, 0);
///     network.add(model::Dense({.units = 5}), {network.last()}, "fc");
model::Network make(std::string_view name, model::Shape input, std::int64_t classes);
/// Overload for any inputs; only wide_deep, lstm, gpt, bert, minilm, seq2seq and caption read
/// several inputs, or int32.
model::Network make(std::string_view name, std::span<const DataInput> inputs, std::int64_t classes);

/// The names that make() accepts: linear, mlp, cnn, fast_cifar, resnet18, resnet34, resnet50,
/// resnet101, resnet152, mobilenet_v2, wide_deep, lstm, gpt, bert, minilm, seq2seq, caption, vit.
std::vector<std::string_view> names();

}  // namespace lockstep::inline v0::zoo
