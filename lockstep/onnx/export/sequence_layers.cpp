// Export of layers of sequences.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"
#include "lockstep/model/layers/recurrent/recurrent.h"
#include "lockstep/model/layers/shape/shape.h"
#include "lockstep/onnx/export/exporter.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;
using Ints = std::vector<std::int64_t>;

constexpr float kHidden = -1e30f;  // acts as -infinity, without producing NaN

/// Whether each position of `segments`, int32 [batch, T], is not padding: bool [batch, T]. Shared
/// by all layers.
std::string is_text(const LayerExport& layer, const std::string& segments) {
  return layer.exporter.shared_value("text " + segments, [&] {
    GraphBuilder& graph = layer.graph();
    const std::string zero = layer.exporter.shared_value("int32 zero", [&] {
      const std::int32_t value = 0;
      return graph.tensor({.name = "padding",
                           .type = TensorType::int32,
                           .shape = {},
                           .bytes = bytes_of<std::int32_t>({&value, 1})});
    });
    return graph.add("Not", {graph.add("Equal", {segments, zero}, segments + "/is_padding")},
                     segments + "/is_text");
  });
}

/// is_text() as float32 1 or 0, with an additional axis.
std::string text_weights(const LayerExport& layer, const std::string& segments, std::int64_t axis) {
  return layer.exporter.shared_value(fmt::format("weights {} {}", axis, segments), [&] {
    GraphBuilder& graph = layer.graph();
    const std::string weights = graph.add("Cast", {is_text(layer, segments)}, segments + "/weights",
                                          {{"to", static_cast<std::int64_t>(TensorType::float32)}});
    return graph.add("Unsqueeze", {weights, graph.integers({axis})}, segments + "/column");
  });
}

// ---- Embeddings

Operand embedding(const LayerExport& layer) {
  const model::ParameterInfo* const table = layer.find("embeddings");
  LOCKSTEP_CHECK(table != nullptr);
  return layer.plain(layer.add("Gather",
                               {layer.exporter.shared_parameter(*table), layer.input().name},
                               {{"axis", std::int64_t{0}}}));
}

Operand positional_embedding(const LayerExport& layer) {
  const std::int64_t positions = layer.shape()[0];
  const std::int64_t width = layer.shape()[1];
  using Kind = model::PositionalEmbedding::Kind;
  const Kind kind = layer.options<model::PositionalEmbedding>().kind;
  const std::int64_t rows = kind == Kind::constant ? 1 : positions;
  const std::vector<float> computed =
      kind == Kind::sinusoidal ? model::sinusoidal_table(positions, width) : std::vector<float>();
  const std::span<const float> table =
      computed.empty() ? layer.values("embeddings").first(static_cast<std::size_t>(rows * width))
                       : std::span<const float>(computed);
  GraphBuilder& graph = layer.graph();
  const std::string constant = computed.empty()
                                   ? graph.weights(layer.name("embeddings"), {rows, width}, table)
                                   : graph.floats(layer.name("embeddings"), {rows, width}, table);
  return layer.plain(
      layer.add("Add", {layer.exporter.channels_last(layer.input()).name, constant}));
}

// ---- Attention

/// Sizes and operators of one attention.
class AttentionExport {
 public:
  explicit AttentionExport(const LayerExport& layer)
      : layer_(layer),
        options_(layer.options<model::Attention>()),
        heads_(options_.heads),
        shared_(layer.as<model::Attention>().key_value_heads()),
        width_(layer.shape()[1] / heads_),
        queries_(layer.shape()[0]),
        keys_(layer.inputs.size() < 3 ? queries_ : layer.inputs[1].shape[0]) {
    if (layer.inputs.size() % 2 == 0) segments_ = layer.inputs.back().name;
  }

  Operand write() {
    const std::vector<std::string> parts = read_parts();
    std::string queries = heads(parts[0], queries_, group() > 1 ? group() : 1, "queries");
    std::string keys = heads(parts[1], keys_, 1, "keys");
    const std::string values = heads(parts[2], keys_, 1, "values");
    if (options_.rotary > 0) {
      queries = rotated(queries, queries_, "queries");
      keys = rotated(keys, keys_, "keys");
    }
    Ints swapped;
    for (std::int64_t axis = 0; axis < rank(); ++axis) swapped.push_back(axis);
    std::swap(swapped[swapped.size() - 1], swapped[swapped.size() - 2]);
    keys = layer_.add("Transpose", {keys}, {{"perm", swapped}}, "keys_transposed");
    const float scale = 1 / std::sqrt(static_cast<float>(width_));
    queries = layer_.add("Mul", {queries, layer_.graph().number(scale)}, {}, "queries_scaled");
    std::string scores = layer_.add("MatMul", {queries, keys}, {}, "scores");
    if (const std::string mask = this->mask(); !mask.empty())
      scores =
          layer_.add("Where", {mask, scores, layer_.graph().number(kHidden)}, {}, "scores_masked");
    const std::string weights =
        layer_.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}}, "weights");
    std::string output = layer_.add("MatMul", {weights, values}, {}, "means");
    output = layer_.add("Transpose", {output},
                        {{"perm", group() > 1 ? Ints{0, 3, 1, 2, 4} : Ints{0, 2, 1, 3}}},
                        "means_of_positions");
    output =
        layer_.add("Reshape", {output, layer_.graph().integers({0, queries_, heads_ * width_})}, {},
                   segments_.empty() ? std::string_view() : std::string_view("joined"));
    if (!segments_.empty())
      output = layer_.add("Mul", {output, text_weights(layer_, segments_, 2)});
    return layer_.plain(output);
  }

 private:
  std::int64_t group() const { return heads_ / shared_; }
  std::int64_t rank() const { return group() > 1 ? 5 : 4; }

  /// Queries, keys and values, each [batch, positions, heads * width].
  std::vector<std::string> read_parts() const {
    std::vector<std::string> parts;
    if (layer_.inputs.size() < 3) {
      const std::string sizes =
          layer_.graph().integers({heads_ * width_, shared_ * width_, shared_ * width_});
      return layer_.graph().add_split("Split",
                                      {layer_.exporter.channels_last(layer_.input()).name, sizes},
                                      layer_.name("part"), 3, {{"axis", std::int64_t{-1}}});
    }
    for (std::size_t i = 0; i < 3; ++i)
      parts.push_back(layer_.exporter.channels_last(layer_.inputs[i]).name);
    return parts;
  }

  /// [batch, positions, elements] as [batch, heads, positions, width], or with several heads of
  /// queries for one of keys [batch, key_value_heads, heads of a group, positions, width].
  std::string heads(const std::string& value, std::int64_t positions, std::int64_t members,
                    const char* part) const {
    const bool grouped = group() > 1;
    const Ints shape =
        grouped ? Ints{0, positions, shared_, members, width_} : Ints{0, positions, heads_, width_};
    const std::string split = layer_.add("Reshape", {value, layer_.graph().integers(shape)}, {},
                                         fmt::format("{}_of_heads", part));
    return layer_.add("Transpose", {split},
                      {{"perm", grouped ? Ints{0, 2, 3, 1, 4} : Ints{0, 2, 1, 3}}}, part);
  }

  /// x * cos + (the halves of x swapped, the first negated) * sin.
  std::string rotated(const std::string& value, std::int64_t positions, const char* part) const {
    GraphBuilder& graph = layer_.graph();
    const auto table = [&](const char* name, double (*function)(double)) {
      const std::string key =
          fmt::format("rotary_{}/{},{},{}", name, positions, width_, options_.rotary);
      return layer_.exporter.shared_value(key, [&] {
        const model::AttentionSpec angles{.width = width_, .rotary = options_.rotary};
        std::vector<float> numbers;
        for (std::int64_t position = 0; position < positions; ++position)
          for (std::int64_t i = 0; i < width_; ++i)
            numbers.push_back(
                static_cast<float>(function(angles.angle(position, i % (width_ / 2)))));
        return graph.floats(key, {positions, width_}, numbers);
      });
    };
    const std::string halves = fmt::format("{}_halves", part);
    const auto split = graph.add_split("Split", {value, graph.integers({width_ / 2, width_ / 2})},
                                       layer_.name(halves), 2, {{"axis", std::int64_t{-1}}});
    const std::string negated = layer_.add("Neg", {split[1]}, {}, fmt::format("{}_negated", part));
    const std::string swapped =
        layer_.add("Concat", {negated, split[0]}, {{"axis", std::int64_t{-1}}},
                   fmt::format("{}_swapped", part));
    const std::string cosines =
        layer_.add("Mul", {value, table("cos", [](double x) { return std::cos(x); })}, {},
                   fmt::format("{}_cosines", part));
    const std::string sines =
        layer_.add("Mul", {swapped, table("sin", [](double x) { return std::sin(x); })}, {},
                   fmt::format("{}_sines", part));
    return layer_.add("Add", {cosines, sines}, {}, fmt::format("{}_rotated", part));
  }

  /// The keys that a query attends to, bool; empty: all. Shared by all layers with an equal mask.
  std::string mask() const {
    if (!options_.causal) return segments_.empty() ? std::string() : documents();
    if (segments_.empty()) return earlier();
    return layer_.exporter.shared_value(fmt::format("mask {} {}", rank(), segments_), [&] {
      return layer_.graph().add("And", {documents(), earlier()}, segments_ + "/mask");
    });
  }

  /// [T, T]: position i attends to those up to i.
  std::string earlier() const {
    return layer_.exporter.shared_value(fmt::format("causal {}", queries_), [&] {
      std::string bytes;
      for (std::int64_t i = 0; i < queries_; ++i)
        for (std::int64_t k = 0; k < queries_; ++k) bytes.push_back(k <= i ? 1 : 0);
      return layer_.graph().tensor({.name = fmt::format("causal_mask/{}", queries_),
                                    .type = TensorType::boolean,
                                    .shape = {queries_, queries_},
                                    .bytes = std::move(bytes)});
    });
  }

  /// [batch, 1, T, T], with groups [batch, 1, 1, T, T]: positions of the same segment.
  std::string documents() const {
    return layer_.exporter.shared_value(fmt::format("documents {} {}", rank(), segments_), [&] {
      GraphBuilder& graph = layer_.graph();
      const auto with_axes = [&](const char* part, Ints axes) {
        if (rank() == 5) axes.insert(axes.begin() + 1, 2);
        if (rank() == 5) axes.back() = axes.back() == 3 ? 4 : 3;
        return graph.add("Unsqueeze", {segments_, graph.integers(axes)}, segments_ + part);
      };
      return graph.add("Equal", {with_axes("/of_queries", {1, 3}), with_axes("/of_keys", {1, 2})},
                       segments_ + "/documents");
    });
  }

  const LayerExport& layer_;
  const model::Attention::Options& options_;
  std::int64_t heads_;
  std::int64_t shared_;  // heads of keys and values
  std::int64_t width_;
  std::int64_t queries_;
  std::int64_t keys_;
  std::string segments_;
};

Operand attention(const LayerExport& layer) { return AttentionExport(layer).write(); }

/// The softmax over the keys of the sum of scale * tanh(query + key), times the values.
Operand additive_attention(const LayerExport& layer) {
  GraphBuilder& graph = layer.graph();
  const auto with_axis = [&](std::size_t input, std::int64_t axis, std::string_view part) {
    return layer.add(
        "Unsqueeze",
        {layer.exporter.channels_last(layer.inputs[input]).name, graph.integers({axis})}, {}, part);
  };
  const std::string sums =
      layer.add("Add", {with_axis(0, 2, "queries"), with_axis(1, 1, "keys")}, {},
                "sums");  // [batch, T, S, U]
  const std::string scale =
      graph.floats(layer.name("scale"), {layer.inputs[0].shape[1], 1}, layer.values("scale"));
  std::string scores =
      layer.add("MatMul", {layer.add("Tanh", {sums}, {}, "tanh"), scale}, {}, "scores_of_units");
  scores = layer.add("Squeeze", {scores, graph.integers({3})}, {}, "scores");
  const std::string segments = layer.inputs.size() == 4 ? layer.inputs[3].name : std::string();
  if (!segments.empty()) {
    const std::string mask = layer.exporter.shared_value("text row " + segments, [&] {
      return graph.add("Unsqueeze", {is_text(layer, segments), graph.integers({1})},
                       segments + "/text_row");
    });
    scores = layer.add("Where", {mask, scores, graph.number(kHidden)}, {}, "scores_masked");
  }
  std::string weights = layer.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}}, "weights");
  if (!segments.empty())  // 0 also for texts of padding only
    weights = layer.add("Mul", {weights, text_weights(layer, segments, 1)}, {}, "weights_of_text");
  return layer.plain(
      layer.add("MatMul", {weights, layer.exporter.channels_last(layer.inputs[2]).name}));
}

// ---- Recurrent layers

/// The ONNX operator of a cell, and its gates as blocks of Lockstep's arrays.
struct Cell {
  const char* type;
  std::vector<int> gates;
};

Cell cell_of(std::string_view type) {
  if (type == "lstm") return {.type = "LSTM", .gates = {0, 3, 1, 2}};  // i, o, f, c of i, f, g, o
  if (type == "gru") return {.type = "GRU", .gates = {1, 0, 2}};       // z, r, h of r, z, n
  return {.type = "RNN", .gates = {0}};
}

/// The operators of one recurrent layer.
class RecurrentExport {
 public:
  explicit RecurrentExport(const LayerExport& layer)
      : layer_(layer),
        options_(layer.options<model::Recurrent>()),
        cell_(cell_of(layer.type)),
        units_(options_.units),
        directions_(options_.bidirectional ? 2 : 1),
        sequences_(options_.return_sequences),
        backwards_(options_.go_backwards) {
    if (options_.segments && !layer.exporter.options().one_document)
      layer.refuse("expected a recurrent layer whose segments are one text and its padding",
                   "its segments may be several documents, for which ONNX has no operator");
  }

  Operand write() {
    GraphBuilder& graph = layer_.graph();
    // The recurrent operators of onnxruntime read positions first.
    const std::string input =
        layer_.add("Transpose", {layer_.exporter.channels_last(layer_.input()).name},
                   {{"perm", Ints{1, 0, 2}}}, "steps");
    std::vector<std::string> inputs{input, array("kernel", layer_.input().shape[1]),
                                    array("recurrent_kernel", units_),
                                    options_.use_bias ? biases() : std::string(), lengths()};
    for (const std::string& state : initial_states()) inputs.push_back(state);
    while (inputs.back().empty()) inputs.pop_back();
    std::vector<Attribute> attributes{{"hidden_size", units_},
                                      {"direction", std::string(directions_ == 2 ? "bidirectional"
                                                                : backwards_     ? "reverse"
                                                                                 : "forward")}};
    if (layer_.type == "gru") attributes.push_back({"linear_before_reset", std::int64_t{1}});
    const std::string output = graph.unique_name(layer_.name(sequences_ ? "outputs" : "last"));
    graph.add_node(cell_.type, inputs,
                   sequences_ ? std::vector{output} : std::vector<std::string>{"", output},
                   attributes);
    return layer_.plain(sequences_ ? sequence(output) : last(output));
  }

 private:
  std::int64_t gates() const { return static_cast<std::int64_t>(cell_.gates.size()); }

  /// Appends the blocks of `values`, one per gate, to `all` in ONNX's order.
  void append(std::vector<float>& all, std::span<const float> values) const {
    const std::size_t block = values.size() / cell_.gates.size();
    for (const int gate : cell_.gates) {
      const auto part = values.subspan(static_cast<std::size_t>(gate) * block, block);
      all.insert(all.end(), part.begin(), part.end());
    }
  }

  static std::string array_name(int direction, const char* name) {
    return fmt::format("{}{}", direction == 0 ? "" : "backward_", name);
  }

  /// [directions, gates * units, columns].
  std::string array(const char* name, std::int64_t columns) const {
    std::vector<float> all;
    for (int direction = 0; direction < directions_; ++direction)
      append(all, layer_.values(array_name(direction, name)));
    return layer_.graph().weights(layer_.name(name), {directions_, gates() * units_, columns}, all);
  }

  /// [directions, 2 * gates * units]: input biases, then recurrent ones, or zeros if the layer has
  /// none.
  std::string biases() const {
    std::vector<float> all;
    for (int direction = 0; direction < directions_; ++direction) {
      append(all, layer_.values(array_name(direction, "bias")));
      if (layer_.type == "gru" || options_.recurrent_bias)
        append(all, layer_.values(array_name(direction, "recurrent_bias")));
      else
        all.resize(all.size() + static_cast<std::size_t>(gates() * units_));
    }
    return layer_.graph().floats(layer_.name("bias"), {directions_, 2 * gates() * units_}, all);
  }

  /// Number of positions before the padding, int32 [batch]; empty: all.
  std::string lengths() const {
    if (!options_.segments) return {};
    const std::string& segments = layer_.inputs.back().name;
    return layer_.exporter.shared_value("lengths " + segments, [&] {
      GraphBuilder& graph = layer_.graph();
      const std::string ones = graph.add("Cast", {is_text(layer_, segments)}, segments + "/ones",
                                         {{"to", static_cast<std::int64_t>(TensorType::int32)}});
      return graph.add("ReduceSum", {ones, graph.integers({1})}, segments + "/lengths",
                       {{"keepdims", std::int64_t{0}}});
    });
  }

  /// The initial h, and c of an LSTM, each [directions, batch, units].
  std::vector<std::string> initial_states() const {
    if (!options_.initial_state) return {};
    GraphBuilder& graph = layer_.graph();
    const std::int64_t states = layer_.type == "lstm" ? 2 : 1;
    const std::string split = layer_.add("Reshape",
                                         {layer_.exporter.channels_last(layer_.inputs[1]).name,
                                          graph.integers({0, directions_, states, units_})},
                                         {}, "initial_of_directions");
    const std::string ordered =
        layer_.add("Transpose", {split}, {{"perm", Ints{2, 1, 0, 3}}}, "initial");
    std::vector<std::string> names;
    const Ints ones(static_cast<std::size_t>(states), 1);
    for (const std::string& state :
         graph.add_split("Split", {ordered, graph.integers(ones)}, layer_.name("initial_state"),
                         static_cast<std::size_t>(states), {{"axis", std::int64_t{0}}}))
      names.push_back(graph.add("Squeeze", {state, graph.integers({0})}, state + "/array"));
    return names;
  }

  /// [batch, T, directions * units] of [T, directions, batch, units].
  std::string sequence(std::string value) const {
    GraphBuilder& graph = layer_.graph();
    if (backwards_)  // in order of computation
      value = layer_.add(
          "Slice",
          {value, graph.integers({-1}), graph.integers({std::numeric_limits<std::int64_t>::min()}),
           graph.integers({0}), graph.integers({-1})},
          {}, "reversed");
    const std::string ordered =
        layer_.add("Transpose", {value}, {{"perm", Ints{2, 0, 1, 3}}}, "positions");
    return layer_.add("Reshape",
                      {ordered, graph.integers({0, layer_.shape()[0], directions_ * units_})});
  }

  /// [batch, directions * units] of [directions, batch, units].
  std::string last(const std::string& value) const {
    const std::string ordered =
        layer_.add("Transpose", {value}, {{"perm", Ints{1, 0, 2}}}, "last_of_directions");
    return layer_.add("Reshape", {ordered, layer_.graph().integers({0, directions_ * units_})});
  }

  const LayerExport& layer_;
  const model::RecurrentOptions& options_;
  Cell cell_;
  std::int64_t units_;
  int directions_;
  bool sequences_;
  bool backwards_;
};

Operand recurrent(const LayerExport& layer) { return RecurrentExport(layer).write(); }

// ---- Positions

Operand mean_of_positions(const LayerExport& layer) {
  GraphBuilder& graph = layer.graph();
  const std::string input = layer.exporter.channels_last(layer.input()).name;
  if (layer.inputs.size() == 1)
    return layer.plain(
        layer.add("ReduceMean", {input}, {{"axes", Ints{1}}, {"keepdims", std::int64_t{0}}}));
  const std::string weights = text_weights(layer, layer.inputs[1].name, 2);
  const std::string weighted = layer.add("Mul", {input, weights}, {}, "weighted");
  const std::vector<Attribute> no_axis{{"keepdims", std::int64_t{0}}};
  const std::string sum = layer.add("ReduceSum", {weighted, graph.integers({1})}, no_axis, "sum");
  const std::string count =
      layer.add("ReduceSum", {weights, graph.integers({1})}, no_axis, "count");
  const std::string divisor = layer.add("Max", {count, graph.number(1)}, {}, "divisor");
  return layer.plain(layer.add("Div", {sum, divisor}));
}

Operand cropped(const LayerExport& layer) {
  GraphBuilder& graph = layer.graph();
  const std::int64_t before = layer.options<model::Cropping1D>().before;
  return layer.plain(layer.add(
      "Slice", {layer.exporter.channels_last(layer.input()).name, graph.integers({before}),
                graph.integers({before + layer.shape()[0]}), graph.integers({1})}));
}

constexpr LayerRow kSequenceLayers[] = {
    {"embedding", embedding},  {"positional_embedding", positional_embedding},
    {"attention", attention},  {"additive_attention", additive_attention},
    {"lstm", recurrent},       {"gru", recurrent},
    {"simple_rnn", recurrent}, {"global_average_pooling1d", mean_of_positions},
    {"cropping1d", cropped},
};

}  // namespace

std::span<const LayerRow> sequence_layers() { return kSequenceLayers; }

}  // namespace lockstep::inline v0::onnx
