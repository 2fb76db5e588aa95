// A directed acyclic graph of layers, described independently of a device: shapes, parameters,
// initializers.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/layers/layer.h"
#include "lockstep/model/parameters.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model {

/// The output of a layer, or the network's input (`kInput`).
using NodeId = int;
inline constexpr NodeId kInput = -1;  ///< The samples themselves, as the input of a node.

/// A layer in the graph, with its inputs and its output shape.
struct Node {
  std::string name;                     ///< unique: "conv2d", "conv2d_1", or as given
  std::shared_ptr<const Layer> layer;   ///< shared by all networks that contain it
  std::vector<NodeId> inputs;           ///< the nodes whose outputs it reads
  Shape output_shape;                   ///< without the batch
  std::vector<std::size_t> parameters;  ///< indices into Network::parameters().entries()
  std::vector<std::size_t> buffers;     ///< indices into Network::buffers().entries()
};

/// Built layer by layer; the last one added is the output.
///
///     Network network({28, 28, 1});
///     network.add(Conv2D({.filters = 32, .kernel = 3}));
///     network.add(ReLU());
///     network.add(Flatten());
///     network.add(Dense({.units = 10}));
///
/// add() checks shapes immediately and throws Error (input) that names the layer, what it expected
/// and what it got.
class Network {
 public:
  /// For samples of shape `input_shape`, without the batch. `name` appears in messages and
  /// checkpoints.
  explicit Network(Shape input_shape, std::string name = "network");

  /// Adds `layer` after the last layer (or after the input). Returns its id.
  template <typename L>
  NodeId add(L layer) {
    return add_node(std::make_shared<const L>(std::move(layer)), {last()}, {});
  }
  /// Adds `layer` with the inputs `inputs`: ids that add() returned, or kInput. `name` must be
  /// unique, or empty for an automatic name.
  template <typename L>
  NodeId add(L layer, std::vector<NodeId> inputs, std::string name = {}) {
    return add_node(std::make_shared<const L>(std::move(layer)), std::move(inputs),
                    std::move(name));
  }
  /// Inputs are ids, not names. Without this overload {"a", "b"} would be a range of characters.
  template <typename L, std::convertible_to<std::string_view> Name>
  NodeId add(L layer, std::initializer_list<Name> inputs, std::string name = {}) = delete;
  /// Adds `layer` as `name`, which must be unique, or with an automatic name if it is empty. Throws
  /// Error (input).
  NodeId add_node(std::shared_ptr<const Layer> layer, std::vector<NodeId> inputs, std::string name);

  /// The last node added, kInput if there is none.
  NodeId last() const { return static_cast<NodeId>(nodes_.size()) - 1; }

  const std::string& name() const { return name_; }  ///< used in messages and checkpoints
  /// Shape of one sample, without the batch.
  const Shape& input_shape() const { return input_shape_; }
  /// Output shape of the last node for one sample.
  const Shape& output_shape() const { return shape(last()); }
  /// Output shape of `node` for one sample.
  const Shape& shape(NodeId node) const {
    return node == kInput ? input_shape_ : nodes_[static_cast<std::size_t>(node)].output_shape;
  }
  /// Excludes the parameters whose names match one of `patterns` (ParameterTable::matching) from
  /// training: they have no gradients and no optimizer slots, and never change. A batch
  /// normalization without trained parameters uses its moving statistics in training, too, and does
  /// not change them. Throws Error (input) if a pattern matches nothing, or nothing would be
  /// trained.
  void freeze(std::span<const std::string> patterns);
  /// Multiplies the learning rate of the parameters that match `pattern` by `rate_factor`, and
  /// replaces the weight decay of those that have decay. Of several calls that match a parameter
  /// the last one counts. Throws Error (input) if the pattern matches nothing.
  void set_group(const std::string& pattern, float rate_factor, std::optional<float> weight_decay);
  /// Whether the layer has parameters, all of them frozen.
  bool is_frozen(const Node& node) const;

  /// In the order in which they were added, which is a valid execution order.
  std::span<const Node> nodes() const { return nodes_; }

  /// Tables of the flat arrays; see ParameterTable for their order.
  const ParameterTable& parameters() const { return parameters_; }
  /// The beginning of parameters(): those that are not frozen. Gradients and optimizer slots have
  /// this layout.
  const ParameterTable& trained() const { return trained_; }
  /// Arrays that are stored but not trained, such as moving means, in flat memory.
  const ParameterTable& buffers() const { return buffers_; }
  /// Elements at the beginning of the flat buffers that training may change.
  std::size_t changing_buffers() const { return changing_buffers_; }

  /// A human-readable table: layer, output shape, parameters.
  std::string summary() const;

 private:
  void change(std::string_view where, const std::string& pattern,
              const std::function<void(ParameterInfo&)>& change);
  void lay_out();

  std::string name_;
  Shape input_shape_;
  std::vector<Node> nodes_;
  std::vector<std::vector<ParameterInfo>> node_parameters_;
  std::vector<std::vector<ParameterInfo>> node_buffers_;
  ParameterTable parameters_;
  ParameterTable trained_;
  ParameterTable buffers_;
  std::size_t changing_buffers_ = 0;
};

}  // namespace lockstep::model
