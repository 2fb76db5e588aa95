// Operators of a graph that are one layer of Lockstep together, as exporter.h writes them. Private
// to the module.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "lockstep/model/layers/layer.h"
#include "lockstep/onnx/model.h"

namespace lockstep::onnx {

/// Of an extent in a pattern, so that products of three fit.
inline constexpr std::int64_t kMaxPatternExtent = std::int64_t{1} << 20;

/// A layer for which the graph has several operators.
struct LayerPattern {
  /// Name and outputs are those of the last operator. With `layer`, the type is its kind, which is
  /// that of no operator, and the inputs are those of the layer. Otherwise it is an LSTM, GRU or
  /// RNN, with the segments instead of the lengths, and as the initial h the state that our layer
  /// reads.
  Node node;
  std::shared_ptr<const model::Layer> layer;  ///< null: a recurrent layer
  std::vector<model::Shape> shapes;           ///< of a sample of each input; empty: any
  const char* parameter = nullptr;            ///< of the layer; null: it has none
  const Tensor* weights = nullptr;            ///< the parameter, [count] or [count, 1]
  bool reverses_sequence = false;  ///< the outputs are in the order in which they are computed
};

/// Finds attention, additive attention, means of positions without padding, normalizations by the
/// root of the mean square, and recurrent layers with segments, an initial state or reversed
/// outputs. Refers to the graph.
class LayerPatterns {
 public:
  explicit LayerPatterns(const Graph& graph);

  /// The layer whose last operator is `last`, if there is one.
  std::optional<LayerPattern> find(const Node& last) const;

 private:
  using Ints = std::vector<std::int64_t>;
  struct Heads;
  struct Mask;

  std::optional<LayerPattern> attention(const Node& last) const;
  std::optional<LayerPattern> additive_attention(const Node& last) const;
  std::optional<LayerPattern> mean_of_positions(const Node& last) const;
  std::optional<LayerPattern> rms_normalization(const Node& last) const;
  std::optional<LayerPattern> recurrent(const Node& node) const;
  std::optional<LayerPattern> reversed_recurrent(const Node& last) const;

  std::optional<Heads> heads(const std::string& tensor, bool is_grouped) const;
  std::optional<Mask> mask(const std::string& tensor, bool is_grouped) const;
  std::optional<float> rotation(const std::string& cosines, const std::string& sines,
                                std::int64_t positions, std::int64_t width) const;
  bool unrotate(std::string& tensor, const Heads& of, float& rotary) const;
  bool is_causal(const std::string& tensor, std::int64_t positions) const;
  std::string state_of(const Node& node) const;

  // Each is "" where the graph has something else.
  std::string input_of(const std::string& tensor, std::string_view type, const Ints& values) const;
  std::string sum_of_positions(const std::string& tensor) const;
  std::string transposed(const std::string& tensor, const Ints& order) const;
  std::string text_of(const std::string& tensor) const;
  std::string text_weights_of(const std::string& tensor, TensorType type) const;

  const Node* maker(const std::string& tensor, std::string_view type, std::size_t inputs) const;
  const Tensor* constant(const std::string& tensor) const;
  std::optional<Ints> integers(const std::string& tensor) const;
  std::optional<double> number(const std::string& tensor) const;

  std::unordered_map<std::string_view, const Node*> makers_;
  std::unordered_map<std::string_view, const Tensor*> constants_;
  // What large constants are, so that each is read once.
  mutable std::map<std::string, bool, std::less<>> causal_;
  mutable std::map<std::tuple<std::string, std::string, std::int64_t>, std::optional<float>>
      rotations_;
};

}  // namespace lockstep::onnx
