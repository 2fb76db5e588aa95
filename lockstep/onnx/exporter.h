// The export of a network to a graph of ONNX, layer by layer. Internal to this module: see
// export.h.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/network.h"
#include "lockstep/onnx/export.h"
#include "lockstep/onnx/graph_builder.h"

namespace lockstep::onnx {

/// An array of the graph that is an input or the output of a layer.
struct Operand {
  std::string name;    ///< of the value
  model::Shape shape;  ///< Lockstep's, without the batch, the channels last
  /// Whether the value is [batch, C, ...] instead of [batch, ..., C]; with `flattened` whether its
  /// elements have the order of such an array.
  bool channels_first = false;
  model::Shape flattened = {};  ///< of an image flattened channels first: its shape, channels last
};

/// values[outer][spatial][channels] as [outer][channels][spatial].
std::vector<float> channels_to_front(std::span<const float> values, std::int64_t outer,
                                     std::int64_t spatial, std::int64_t channels);

/// What the layers are written to.
class Exporter {
 public:
  /// All must outlive it.
  Exporter(const model::Network& network, const NetworkArrays& arrays,
           const ExportOptions& options);

  /// The graph of the whole network. Throws Error (input) that names the layer.
  Graph run();

  const model::Network& network() const { return network_; }
  const ExportOptions& options() const { return options_; }
  GraphBuilder& graph() { return graph_; }

  /// The values of a parameter or buffer.
  std::span<const float> values(const model::ParameterInfo& entry, bool is_buffer) const;
  /// The array [rows..., columns] of a parameter as one constant, for all layers that read it.
  std::string shared_parameter(const model::ParameterInfo& entry);

  /// `operand` with the channels last, and in Lockstep's order.
  Operand channels_last(const Operand& operand);
  /// `operand`, which has at least two axes, with the channels first.
  Operand channels_first(const Operand& operand);

  /// A value that several layers share, by a key: the name of an earlier one, or that which `make`
  /// returns.
  template <typename Make>
  std::string shared_value(const std::string& key, const Make& make) {
    if (const auto found = shared_.find(key); found != shared_.end()) return found->second;
    return shared_[key] = make();
  }

 private:
  void check_int8_layers() const;
  Operand add_input(const model::NetworkInput& input);
  void preprocess(const model::NetworkInput& input, Operand& operand, Value& value);
  std::vector<bool> needed() const;

  const model::Network& network_;
  const NetworkArrays& arrays_;
  const ExportOptions& options_;
  GraphBuilder graph_;
  std::vector<Operand> inputs_;
  std::vector<Operand> results_;  // of the layers
  std::map<std::string, std::string> shared_;
};

/// A layer that is exported.
struct LayerExport {
  Exporter& exporter;
  model::NodeId id;               ///< of the node
  const model::Node& node;        ///< the layer
  std::string_view type;          ///< of descriptions, such as "conv2d"
  const nlohmann::json& options;  ///< as in descriptions
  std::span<const Operand> inputs;

  GraphBuilder& graph() const { return exporter.graph(); }
  const Operand& input() const { return inputs.front(); }
  /// The shape of the output, without the batch.
  const model::Shape& shape() const { return node.output_shape; }

  /// Adds the operator that computes the layer, or a part of it called LAYER/part.
  std::string add(std::string op, std::vector<std::string> from,
                  std::vector<Attribute> attributes = {}, std::string_view part = {}) const;
  /// LAYER/name.
  std::string name(std::string_view part) const;
  /// The entry of its parameter, or buffer, `name`; null if it has none.
  const model::ParameterInfo* find(std::string_view name, bool is_buffer = false) const;
  /// The values of its parameter or buffer `name`, which it has.
  std::span<const float> values(std::string_view name, bool is_buffer = false) const;
  /// Whether its kernel is stored as int8.
  bool is_int8() const;

  /// The first input of the layer, and its output, have the same layout.
  Operand like_input(std::string value) const;
  /// The output with the channels last.
  Operand plain(std::string value) const { return {.name = std::move(value), .shape = shape()}; }

  /// Throws Error (input) `[layer (type)] expected …, got …`.
  [[noreturn]] void refuse(std::string_view expected, std::string_view actual) const;
};

/// Adds the operators of a layer.
using ExportLayer = Operand (*)(const LayerExport& layer);

/// A row of the tables of the layers.
struct LayerRow {
  std::string_view type;  ///< of descriptions
  ExportLayer write;      ///< adds its operators
};

std::span<const LayerRow> array_layers();     ///< of images, vectors and single elements
std::span<const LayerRow> sequence_layers();  ///< of sequences

}  // namespace lockstep::onnx
