// Exports a network to an ONNX graph, layer by layer. Internal to this module: see export.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network/network.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/export/graph_builder.h"
#include "lockstep/onnx/export/table_graph.h"
#include "lockstep/onnx/export/text_graph.h"

namespace lockstep::inline v0::onnx {

/// An array of the graph that is an input or the output of a layer.
struct Operand {
  std::string name;    ///< name of the value
  model::Shape shape;  ///< shape in Lockstep: without the batch, channels last
  /// Whether the value is [batch, C, ...] instead of [batch, ..., C], or with `flattened`, whether
  /// its elements have that order.
  bool channels_first = false;
  model::Shape flattened = {};  ///< channels-last shape of an image flattened channels first
};

/// Transposes values[outer][spatial][channels] to [outer][channels][spatial].
std::vector<float> channels_to_front(std::span<const float> values, std::int64_t outer,
                                     std::int64_t spatial, std::int64_t channels);

/// Builds the graph; the functions of the layers write to it.
class Exporter {
 public:
  /// The arguments must outlive it.
  Exporter(const model::Network& network, const NetworkArrays& arrays,
           const ExportOptions& options);

  /// The graph of the whole network. Throws Error (input) that names the layer.
  Graph run();

  const model::Network& network() const { return network_; }
  const ExportOptions& options() const { return options_; }
  GraphBuilder& graph() { return graph_; }

  /// The values of a parameter or buffer.
  std::span<const float> values(const model::ParameterInfo& entry, bool is_buffer) const;
  /// The array [rows..., columns] of a parameter, one constant for all layers that read it.
  std::string shared_parameter(const model::ParameterInfo& entry);

  /// `operand` with the channels last and its elements in Lockstep's order.
  Operand channels_last(const Operand& operand);
  /// `operand`, which has at least two axes, with the channels first.
  Operand channels_first(const Operand& operand);

  /// A value that several layers share: the name cached for `key`, or else the result of `make`.
  template <typename Make>
  std::string shared_value(const std::string& key, const Make& make) {
    if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
    return shared_[key] = make();
  }

 private:
  void check_int8_layers() const;
  Operand add_input(const model::NetworkInput& input);
  Operand add_table_input(const model::NetworkInput& input, bool is_first_float);
  void normalize(const model::NetworkInput& input, Operand& operand, Value& value);
  std::vector<bool> needed() const;

  const model::Network& network_;
  const NetworkArrays& arrays_;
  const ExportOptions& options_;
  GraphBuilder graph_;
  std::optional<TableGraph> table_;  // with preprocessing of a table
  std::optional<TextGraph> text_;    // with preprocessing of a text
  std::vector<Operand> inputs_;
  std::vector<Operand> results_;  // outputs of the layers
  std::map<std::string, std::string> shared_;
};

/// A layer that is exported.
struct LayerExport {
  Exporter& exporter;
  model::NodeId id;         ///< id of the node
  const model::Node& node;  ///< the layer
  std::string_view type;    ///< type in descriptions, such as "conv2d"
  std::span<const Operand> inputs;

  GraphBuilder& graph() const { return exporter.graph(); }
  const Operand& input() const { return inputs.front(); }
  /// The layer, which is an L.
  template <typename L>
  const L& as() const {
    return dynamic_cast<const L&>(*node.layer);
  }
  /// The options of the layer, which is an L.
  template <typename L>
  decltype(auto) options() const {
    return as<L>().options();
  }
  /// The shape of the output, without the batch.
  const model::Shape& shape() const { return node.output_shape; }

  /// Adds the operator that computes the layer, or a part of it called LAYER/part.
  std::string add(std::string op, std::vector<std::string> from,
                  std::vector<Attribute> attributes = {}, std::string_view part = {}) const;
  /// The name LAYER/part.
  std::string name(std::string_view part) const;
  /// The entry of the layer's parameter, or buffer, `name`; null if there is none.
  const model::ParameterInfo* find(std::string_view name, bool is_buffer = false) const;
  /// The values of the layer's parameter or buffer `name`, which must exist.
  std::span<const float> values(std::string_view name, bool is_buffer = false) const;
  /// Whether the layer's kernel is stored as int8.
  bool is_int8() const;

  /// The output, in the layout of the first input.
  Operand like_input(std::string value) const;
  /// The output with the channels last.
  Operand plain(std::string value) const { return {.name = std::move(value), .shape = shape()}; }

  /// Throws Error (input) `[layer (type)] expected …, got …`.
  [[noreturn]] void refuse(std::string_view expected, std::string_view actual) const;
};

/// Adds the operators of a layer.
using ExportLayer = Operand (*)(const LayerExport& layer);

/// A row of the tables of layers.
struct LayerRow {
  std::string_view type;  ///< type in descriptions
  ExportLayer write;      ///< adds the layer's operators
};

std::span<const LayerRow> array_layers();     ///< layers of images, vectors and single elements
std::span<const LayerRow> sequence_layers();  ///< layers of sequences

}  // namespace lockstep::inline v0::onnx
