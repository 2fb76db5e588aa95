// Groups of operators that form one layer of Lockstep, as exporter.h writes them. Private to the
// module.
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

#include "lockstep/model/layer/layer.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// Maximum extent in a pattern, so that products of three do not overflow.
inline constexpr std::int64_t kMaxPatternExtent = std::int64_t{1} << 20;

/// A layer for which the graph has several operators.
struct LayerPattern {
  /// Replaces the operators, with the name and the outputs of the last one. With `layer`, the type
  /// is its kind, which differs from every operator, and the inputs are those of the layer.
  /// Otherwise it is an LSTM, GRU or RNN, with segments instead of the lengths, and with the
  /// layer's state as the initial h.
  Node node;
  std::shared_ptr<const model::Layer> layer;  ///< null: a recurrent layer
  std::vector<model::Shape> shapes;           ///< required shape of a sample, by input; empty: any
  const char* parameter = nullptr;            ///< name of the layer's parameter; null: none
  const Tensor* weights = nullptr;            ///< the parameter, [count] or [count, 1]
  bool reverses_sequence = false;             ///< the outputs are in order of computation
};

/// Finds attention, additive attention, means of positions without padding, normalizations by the
/// root of the mean square, and recurrent layers with segments, an initial state or reversed
/// outputs. The graph must outlive it.
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
  bool unrotate(std::string& tensor, const Heads& shape, float& rotary) const;
  bool is_causal(const std::string& tensor, std::int64_t positions) const;
  std::string state_of(const Node& node) const;

  // Each returns "" if the graph differs from the pattern.
  std::string input_of(const std::string& tensor, std::string_view type, const Ints& values) const;
  std::string sum_of_positions(const std::string& tensor) const;
  std::string transposed(const std::string& tensor, const Ints& order) const;
  std::string text_of(const std::string& tensor) const;
  std::string text_weights_of(const std::string& tensor, TensorType type) const;

  const Node* producer(const std::string& tensor, std::string_view type, std::size_t inputs) const;
  const Tensor* constant(const std::string& tensor) const;
  std::optional<Ints> integers(const std::string& tensor) const;
  std::optional<double> number(const std::string& tensor) const;

  std::unordered_map<std::string_view, const Node*> producers_;
  std::unordered_map<std::string_view, const Tensor*> constants_;
  // Results for large constants, so that each is read once.
  mutable std::map<std::string, bool, std::less<>> causal_;
  mutable std::map<std::tuple<std::string, std::string, std::int64_t>, std::optional<float>>
      rotations_;
};

}  // namespace lockstep::inline v0::onnx
