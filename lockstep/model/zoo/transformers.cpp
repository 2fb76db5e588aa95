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

namespace lockstep::zoo {

using model::Network;
using model::NodeId;

namespace {

constexpr float kDeviation = 0.02f;  // of initial weights, as in GPT-2 and BERT

// As many heads of about 64 elements as divide the width.
std::int64_t heads_of(std::int64_t width) {
  std::int64_t heads = std::max<std::int64_t>(width / 64, 1);
  while (width % heads != 0) --heads;
  return heads;
}

std::string name_of(std::string_view kind, const TransformerOptions& options) {
  std::string name = fmt::format("{}:{}x{}", kind, options.layers, options.width);
  if (options.heads > 0) name += fmt::format("x{}", options.heads);
  if (options.dropout > 0) name += fmt::format(",dropout={}", options.dropout);
  return name;
}

std::vector<model::NetworkInput> network_inputs(std::span<const DataInput> inputs) {
  std::vector<model::NetworkInput> read;
  for (const DataInput& input : inputs) read.push_back(input.input);
  return read;
}

// Checks the options and the inputs.
void check_reads_tokens(std::string_view kind, std::span<const DataInput> inputs,
                        const TransformerOptions& options) {
  if (options.layers < 1 || options.width < 1)
    throw Error(ErrorCategory::input, kind, "expected at least one layer and a width of at least 1",
                fmt::format("got {} and {}", options.layers, options.width));
  const bool are_positions =
      !inputs.empty() && inputs.size() <= 2 && std::ranges::all_of(inputs, [&](const DataInput& i) {
        return i.input.type == ElementType::int32 && i.input.shape.size() == 1 &&
               i.input.shape == inputs.front().input.shape;
      });
  if (are_positions && inputs.front().categories > 0) return;
  std::string given;
  for (const DataInput& input : inputs)
    given += fmt::format("{}{} {}", given.empty() ? "" : ", ", input.input.name,
                         model::to_string(input.input.shape));
  throw Error(ErrorCategory::input, kind,
              "expected tokens of a vocabulary, one int32 for each position of a text, and "
              "optionally the segments of the same positions",
              fmt::format("got {}", given));
}

// A network of blocks, which reads tokens and perhaps segments.
class Transformer {
 public:
  Transformer(std::string_view kind, std::span<const DataInput> inputs,
              const TransformerOptions& options)
      : network_(network_inputs(inputs), name_of(kind, options)), options_(options) {
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
    const std::int64_t heads = options_.heads > 0 ? options_.heads : heads_of(options_.width);
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
  // The sum of the tokens' rows and the positions' rows.
  NodeId embed(std::int64_t vocabulary, std::string tokens, std::string positions) {
    const NodeId rows =
        add(model::Embedding(
                {.vocabulary = vocabulary, .dimension = options_.width, .stddev = kDeviation}),
            {model::kInput}, std::move(tokens));
    return add(model::PositionalEmbedding({.stddev = kDeviation}), {rows}, std::move(positions));
  }
  Network take() { return std::move(network_); }

 private:
  Network network_;
  const TransformerOptions& options_;
  std::vector<NodeId> segments_;  // none, or the input
};

}  // namespace

Network gpt(std::span<const DataInput> inputs, const TransformerOptions& options) {
  constexpr float kEpsilon = 1e-5f;
  check_reads_tokens("gpt", inputs, options);
  const std::int64_t width = options.width;
  // A sum of 2 * layers residuals has then the variance of one.
  const float residual = kDeviation / std::sqrt(2 * static_cast<float>(options.layers));
  Transformer t("gpt", inputs, options);
  NodeId x = t.dropout(t.embed(inputs.front().categories, "wte", "wpe"));
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string block = fmt::format("h.{}.", i);
    NodeId y = t.normalize(x, block + "ln_1", kEpsilon);
    y = t.attention({t.dense(3 * width, y, block + "attn.c_attn")}, true);
    y = t.dropout(t.dense(width, y, block + "attn.c_proj", residual));
    x = t.add(model::Add(), {x, y});
    y = t.dense(4 * width, t.normalize(x, block + "ln_2", kEpsilon), block + "mlp.c_fc");
    y = t.add(model::GELU(model::GeluFunction{.approximate = true}), {y});
    y = t.dropout(t.dense(width, y, block + "mlp.c_proj", residual));
    x = t.add(model::Add(), {x, y});
  }
  x = t.normalize(x, "ln_f", kEpsilon);
  t.add(model::TiedDense({.to = "wte"}), {x}, "lm_head");
  return t.take();
}

Network bert(std::span<const DataInput> inputs, std::int64_t classes,
             const TransformerOptions& options) {
  constexpr float kEpsilon = 1e-12f;
  check_reads_tokens("bert", inputs, options);
  const std::int64_t width = options.width;
  Transformer t("bert", inputs, options);
  NodeId x = t.embed(inputs.front().categories, "embeddings.word_embeddings",
                     "embeddings.position_embeddings");
  x = t.dropout(t.normalize(x, "embeddings.LayerNorm", kEpsilon));
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::string block = fmt::format("encoder.layer.{}.", i);
    const NodeId query = t.dense(width, x, block + "attention.self.query");
    const NodeId key = t.dense(width, x, block + "attention.self.key");
    const NodeId value = t.dense(width, x, block + "attention.self.value");
    NodeId y = t.attention({query, key, value}, false);
    y = t.dropout(t.dense(width, y, block + "attention.output.dense"));
    x = t.normalize(t.add(model::Add(), {x, y}), block + "attention.output.LayerNorm", kEpsilon);
    y = t.add(model::GELU(), {t.dense(4 * width, x, block + "intermediate.dense")});
    y = t.dropout(t.dense(width, y, block + "output.dense"));
    x = t.normalize(t.add(model::Add(), {x, y}), block + "output.LayerNorm", kEpsilon);
  }
  const std::int64_t positions = inputs.front().input.shape.front();
  x = t.add(model::Cropping1D({.before = 0, .after = positions - 1}), {x});
  x = t.dense(width, t.add(model::Flatten(), {x}), "pooler.dense");
  x = t.dropout(t.add(model::Tanh(), {x}));
  t.dense(classes, x, "classifier");
  return t.take();
}

}  // namespace lockstep::zoo
