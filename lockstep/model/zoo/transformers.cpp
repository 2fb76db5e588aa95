#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::zoo {

using model::Network;
using model::NodeId;

namespace {

constexpr float kDeviation = 0.02f;  // standard deviation of initial weights, as in GPT-2 and BERT

constexpr float kBertEpsilon = 1e-12f;

// The number of heads of at least `elements` elements that divides the width.
std::int64_t heads_of(std::int64_t width, std::int64_t elements) {
  std::int64_t heads = std::max<std::int64_t>(width / elements, 1);
  while (width % heads != 0) --heads;
  return heads;
}

std::string name_of(std::string_view kind, const TransformerOptions& options) {
  std::string name = fmt::format("{}:{}x{}", kind, options.layers, options.width);
  if (options.heads > 0) name += fmt::format("x{}", options.heads);
  if (options.dropout > 0) name += fmt::format(",dropout={}", options.dropout);
  if (options.patch > 0) name += fmt::format(",patch={}", options.patch);
  if (options.class_token) name += ",class_token";
  if (kind == "gpt" && options.feed_forward == FeedForward::swiglu) name += ",ffn=swiglu";
  return name;
}

std::vector<model::NetworkInput> network_inputs(std::span<const DataInput> inputs) {
  std::vector<model::NetworkInput> read;
  for (const DataInput& input : inputs) read.push_back(input.input);
  return read;
}

void check_sizes(std::string_view kind, const TransformerOptions& options) {
  if (options.layers < 1 || options.width < 1)
    throw Error(ErrorCategory::input, kind, "expected at least one layer and a width of at least 1",
                fmt::format("got {} and {}", options.layers, options.width));
}

void check_reads_tokens(std::string_view kind, std::span<const DataInput> inputs) {
  const bool are_positions =
      !inputs.empty() && inputs.size() <= 2 && std::ranges::all_of(inputs, [&](const DataInput& i) {
        return i.input.type == ElementType::int32 && i.input.shape.size() == 1 &&
               i.input.shape == inputs.front().input.shape;
      });
  if (are_positions && inputs.front().categories > 0) return;
  std::string actual;
  for (const DataInput& input : inputs)
    actual += fmt::format("{}{} {}", actual.empty() ? "" : ", ", input.input.name,
                          model::to_string(input.input.shape));
  throw Error(ErrorCategory::input, kind,
              "expected tokens of a vocabulary, one int32 for each position of a text, and "
              "optionally the segments of the same positions",
              fmt::format("got {}", actual));
}

// Names and settings of blocks that normalize before each residual.
struct BlockStyle {
  const char* attention_norm;
  const char* attention_input;  // queries, keys and values
  const char* attention_output;
  const char* mlp_norm;
  const char* mlp_input;
  const char* mlp_output;
  float epsilon;
  bool causal;
  bool approximate_gelu;
  float output_deviation;          // for the last kernel in each residual
  const char* mlp_gate = nullptr;  // for FeedForward::swiglu
};

// Builds a network of blocks, which reads tokens and optional segments, or an image.
class Transformer {
 public:
  Transformer(std::string_view kind, std::span<const DataInput> inputs,
              const TransformerOptions& options, std::int64_t head = 64)
      : network_(network_inputs(inputs), name_of(kind, options)), options_(options), head_(head) {
    if (inputs.size() == 2) segments_ = {network_.input(inputs[1].input.name)};
  }

  template <typename L>
  NodeId add(L layer, std::vector<NodeId> inputs, std::string name = {}) {
    return network_.add(std::move(layer), std::move(inputs), std::move(name));
  }
  NodeId dense(std::int64_t units, NodeId input, std::string name, float stddev = kDeviation) {
    return add(model::Dense({.units = units, .stddev = stddev}), {input}, std::move(name));
  }
  NodeId attention(std::vector<NodeId> inputs, bool causal) {
    const std::int64_t heads =
        options_.heads > 0 ? options_.heads : heads_of(options_.width, head_);
    inputs.insert(inputs.end(), segments_.begin(), segments_.end());
    return add(model::Attention({.heads = heads, .causal = causal}), std::move(inputs));
  }
  NodeId dropout(NodeId input) {
    if (!(options_.dropout > 0)) return input;
    return add(model::Dropout({.rate = options_.dropout}), {input});
  }
  NodeId normalize(NodeId input, std::string name, float epsilon) {
    return add(model::LayerNormalization({.epsilon = epsilon}), {input}, std::move(name));
  }
  NodeId block(NodeId x, const std::string& prefix, const BlockStyle& style) {
    const std::int64_t width = options_.width;
    NodeId y = normalize(x, prefix + style.attention_norm, style.epsilon);
    y = attention({dense(3 * width, y, prefix + style.attention_input)}, style.causal);
    y = dropout(dense(width, y, prefix + style.attention_output, style.output_deviation));
    x = add(model::Add(), {x, y});
    y = normalize(x, prefix + style.mlp_norm, style.epsilon);
    y = style.mlp_gate != nullptr ? gated(y, prefix, style) : hidden(y, prefix, style);
    y = dropout(dense(width, y, prefix + style.mlp_output, style.output_deviation));
    return add(model::Add(), {x, y});
  }
  NodeId hidden(NodeId x, const std::string& prefix, const BlockStyle& style) {
    x = dense(4 * options_.width, x, prefix + style.mlp_input);
    return add(model::GELU(model::GeluFunction{.approximate = style.approximate_gelu}), {x});
  }
  NodeId gated(NodeId x, const std::string& prefix, const BlockStyle& style) {
    const std::int64_t units = (options_.width + 2) / 3 * 8;
    const NodeId gate = add(model::SiLU(), {dense(units, x, prefix + style.mlp_gate)});
    return add(model::Multiply(), {gate, dense(units, x, prefix + style.mlp_input)});
  }
  // Adds token and position embeddings. `rows`: number of position embeddings; 0: one per position.
  NodeId embed(std::int64_t vocabulary, std::string tokens, std::string positions,
               std::int64_t rows = 0) {
    const NodeId embedded =
        add(model::Embedding(
                {.vocabulary = vocabulary, .dimension = options_.width, .stddev = kDeviation}),
            {model::kInput}, std::move(tokens));
    return add(model::PositionalEmbedding({.rows = rows, .stddev = kDeviation}), {embedded},
               std::move(positions));
  }
  // embed(), plus the embedding of the first of two token types, which all tokens have.
  NodeId bert_embed(std::int64_t vocabulary, std::int64_t rows = 0) {
    const NodeId x =
        embed(vocabulary, "embeddings.word_embeddings", "embeddings.position_embeddings", rows);
    return add(
        model::PositionalEmbedding(
            {.kind = model::PositionalEmbedding::Kind::constant, .rows = 2, .stddev = kDeviation}),
        {x}, "embeddings.token_type_embeddings");
  }
  // Blocks that normalize after each residual, on embedded tokens, with the names of Hugging Face.
  NodeId bert_encoder(NodeId x) {
    const std::int64_t width = options_.width;
    x = dropout(normalize(x, "embeddings.LayerNorm", kBertEpsilon));
    for (std::int64_t i = 0; i < options_.layers; ++i) {
      const std::string name = fmt::format("encoder.layer.{}.", i);
      const NodeId query = dense(width, x, name + "attention.self.query");
      const NodeId key = dense(width, x, name + "attention.self.key");
      const NodeId value = dense(width, x, name + "attention.self.value");
      NodeId y = attention({query, key, value}, false);
      y = dropout(dense(width, y, name + "attention.output.dense"));
      x = normalize(add(model::Add(), {x, y}), name + "attention.output.LayerNorm", kBertEpsilon);
      y = add(model::GELU(), {dense(4 * width, x, name + "intermediate.dense")});
      y = dropout(dense(width, y, name + "output.dense"));
      x = normalize(add(model::Add(), {x, y}), name + "output.LayerNorm", kBertEpsilon);
    }
    return x;
  }
  const std::vector<NodeId>& segments() const { return segments_; }
  Network release() { return std::move(network_); }

 private:
  Network network_;
  const TransformerOptions& options_;
  std::int64_t head_;             // default number of elements of a head
  std::vector<NodeId> segments_;  // empty, or the input
};

}  // namespace

Network gpt(std::span<const DataInput> inputs, const TransformerOptions& options) {
  check_sizes("gpt", options);
  check_reads_tokens("gpt", inputs);
  const BlockStyle style{
      .attention_norm = "ln_1",
      .attention_input = "attn.c_attn",
      .attention_output = "attn.c_proj",
      .mlp_norm = "ln_2",
      .mlp_input = "mlp.c_fc",
      .mlp_output = "mlp.c_proj",
      .epsilon = 1e-5f,
      .causal = true,
      .approximate_gelu = true,
      // The sum of 2 * layers residuals then has the variance of one.
      .output_deviation = kDeviation / std::sqrt(2 * static_cast<float>(options.layers)),
      .mlp_gate = options.feed_forward == FeedForward::swiglu ? "mlp.c_gate" : nullptr};
  Transformer t("gpt", inputs, options);
  NodeId x = t.dropout(t.embed(inputs.front().categories, "wte", "wpe"));
  for (std::int64_t i = 0; i < options.layers; ++i) x = t.block(x, fmt::format("h.{}.", i), style);
  x = t.normalize(x, "ln_f", style.epsilon);
  t.add(model::TiedDense({.to = "wte"}), {x}, "lm_head");
  return t.release();
}

Network vit(model::Shape input, std::int64_t classes, const TransformerOptions& options) {
  check_sizes("vit", options);
  if (input.size() != 3)
    throw Error(ErrorCategory::input, "vit", "expected an input [height, width, channels]",
                fmt::format("got {}", model::to_string(input)));
  const std::int64_t by_size = stem_for(input) == Stem::cifar ? 4 : 16;
  const std::int64_t patch = options.patch > 0 ? options.patch : by_size;
  if (input[0] % patch != 0 || input[1] % patch != 0)
    throw Error(ErrorCategory::input, "vit",
                fmt::format("expected an image of whole {0}x{0} patches", patch),
                fmt::format("got {}", model::to_string(input)));
  const BlockStyle style{.attention_norm = "norm1",
                         .attention_input = "attn.qkv",
                         .attention_output = "attn.proj",
                         .mlp_norm = "norm2",
                         .mlp_input = "mlp.fc1",
                         .mlp_output = "mlp.fc2",
                         .epsilon = 1e-6f,
                         .causal = false,
                         .approximate_gelu = false,
                         .output_deviation = kDeviation};
  std::int64_t positions = input[0] / patch * (input[1] / patch);
  const DataInput image{{.name = "features", .shape = std::move(input)}};
  Transformer t("vit", std::span(&image, 1), options);
  NodeId x = t.add(model::Conv2D({.filters = options.width, .kernel = patch, .strides = patch}),
                   {model::kInput}, "patch_embed.proj");
  if (options.class_token) {
    // Position 0 of zeros: the row that is added to it is the class token.
    x = t.add(model::Reshape({.shape = {positions++, 1, options.width}}), {x});
    x = t.add(model::ZeroPadding2D({.top = 1, .bottom = 0, .left = 0, .right = 0}), {x},
              "cls_token");
  }
  x = t.add(model::Reshape({.shape = {positions, options.width}}), {x});
  x = t.add(model::PositionalEmbedding({.stddev = kDeviation}), {x}, "pos_embed");
  x = t.dropout(x);
  for (std::int64_t i = 0; i < options.layers; ++i)
    x = t.block(x, fmt::format("blocks.{}.", i), style);
  if (options.class_token) {
    x = t.add(model::Cropping1D({.before = 0, .after = positions - 1}), {x});
    x = t.normalize(t.add(model::Flatten(), {x}), "norm", style.epsilon);
  } else {
    x = t.add(model::Reshape({.shape = {positions, 1, options.width}}), {x});
    x = t.normalize(t.add(model::GlobalAveragePooling2D(), {x}), "fc_norm", style.epsilon);
  }
  t.dense(classes, x, "head");
  return t.release();
}

Network bert(std::span<const DataInput> inputs, std::int64_t classes,
             const TransformerOptions& options) {
  check_sizes("bert", options);
  check_reads_tokens("bert", inputs);
  const std::int64_t width = options.width;
  Transformer t("bert", inputs, options);
  NodeId x = t.bert_encoder(t.bert_embed(inputs.front().categories));
  const std::int64_t positions = inputs.front().input.shape.front();
  x = t.add(model::Cropping1D({.before = 0, .after = positions - 1}), {x});
  x = t.dense(width, t.add(model::Flatten(), {x}), "pooler.dense");
  x = t.dropout(t.add(model::Tanh(), {x}));
  t.dense(classes, x, "classifier");
  return t.release();
}

Network minilm(std::span<const DataInput> inputs, std::int64_t classes,
               const TransformerOptions& options) {
  constexpr std::int64_t kPositions = 512;
  check_sizes("minilm", options);
  check_reads_tokens("minilm", inputs);
  Transformer t("minilm", inputs, options, 32);
  std::vector<NodeId> pooled = {
      t.bert_encoder(t.bert_embed(inputs.front().categories, kPositions))};
  pooled.insert(pooled.end(), t.segments().begin(), t.segments().end());
  const NodeId x = t.dropout(t.add(model::GlobalAveragePooling1D(), std::move(pooled)));
  t.dense(classes, x, "classifier");
  return t.release();
}

}  // namespace lockstep::inline v0::zoo
