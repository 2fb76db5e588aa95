// A directed acyclic graph of layers, described independently of a device: shapes, parameters,
// initializers.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/element_type.h"
#include "lockstep/model/layer/layer.h"
#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

/// The output of a layer, or an input of the network: `kInput` is the first, -2 the second, ….
using NodeId = int;
inline constexpr NodeId kInput = -1;  ///< The first input of the network, as the input of a node.
/// Whether `node` is an input of the network.
constexpr bool is_input(NodeId node) { return node < 0; }
/// The index in Network::inputs() of `node`, which is an input.
constexpr std::size_t input_index(NodeId node) { return static_cast<std::size_t>(kInput - node); }

/// An array that the network reads per sample.
struct NetworkInput {
  std::string name;  ///< unique among the inputs
  Shape shape;       ///< shape of one sample; may be [], one number, for int32
  /// float32, converted to the precision of the model, or int32: indices, for layers that read them
  /// (Layer::index_input).
  ElementType type = ElementType::float32;
};

/// A result of the network.
struct NetworkOutput {
  std::string name;      ///< unique among the outputs
  NodeId node = kInput;  ///< the layer that computes it
};

/// A layer in the graph, with its inputs and its output shape.
struct Node {
  std::string name;                    ///< unique: "conv2d", "conv2d_1", or as given
  std::shared_ptr<const Layer> layer;  ///< shared by all networks that contain it
  std::vector<NodeId> inputs;          ///< the nodes whose outputs it reads
  Shape output_shape;                  ///< without the batch
  /// Indices into Network::parameters().entries().
  std::vector<std::size_t> parameters;
  std::vector<std::size_t> buffers;  ///< indices into Network::buffers().entries()
  /// The earlier layer with which it shares parameter 0.
  std::optional<NodeId> owner = {};

  /// The `parameters` that the layer itself has declared.
  std::span<const std::size_t> own_parameters() const {
    return std::span(parameters).subspan(owner ? 1 : 0);
  }
};

/// Built layer by layer; the last one added is the output, unless output() names others.
///
///     Network network({28, 28, 1});
///     network.add(Conv2D({.filters = 32, .kernel = 3}));
///     network.add(ReLU());
///     network.add(Flatten());
///     network.add(Dense({.units = 10}));
///
/// With several inputs and outputs:
///
///     Network network({{.name = "image", .shape = {28, 28, 1}}, {.name = "table", .shape = {8}}});
///     const NodeId pixels = network.add(Flatten(), {network.input("image")});
///     const NodeId columns = network.add(Dense({.units = 16}), {network.input("table")});
///     network.output("price", network.add(Dense({.units = 1}), {columns}));
///     network.output("kind", network.add(Dense({.units = 5}), {pixels}));
///
/// add() checks shapes immediately and throws Error (input) that names the layer, what it expected
/// and what it got.
class Network {
 public:
  /// One input, "features", of shape `input_shape` without the batch. `name` appears in messages
  /// and checkpoints.
  explicit Network(Shape input_shape, std::string name = "network");
  /// Several inputs. Throws Error (input) for names that are not unique, and for unsupported shapes
  /// and types.
  explicit Network(std::initializer_list<NetworkInput> inputs, std::string name = "network");
  /// Overload for a list created at run time.
  explicit Network(std::span<const NetworkInput> inputs, std::string name = "network");

  /// Adds `layer` after the last layer (or after the input). Returns its id.
  template <typename L>
  NodeId add(L layer) {
    return add_node(std::make_shared<const L>(std::move(layer)), {last()}, {});
  }
  /// Adds `layer` with the inputs `inputs`: ids that add() or input() returned, or kInput. `name`
  /// must be unique, or empty for an automatic name.
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

  /// The id of the input called `name`. Throws Error (input) that lists the inputs.
  NodeId input(std::string_view name) const;
  /// Makes the layer `node` an output called `name`; the first call replaces the default, the last
  /// layer. Throws Error (input) if another output has the name or the layer.
  void output(std::string name, NodeId node);
  /// Throws Error (input) for a network without layers, and for an input that no output depends on.
  void check_complete() const;

  /// The last node added, kInput if there is none.
  NodeId last() const { return static_cast<NodeId>(nodes_.size()) - 1; }

  const std::string& name() const { return name_; }  ///< used in messages and checkpoints
  /// The inputs in the order of their ids: kInput, -2, -3, ….
  std::span<const NetworkInput> inputs() const { return inputs_; }
  /// The outputs in the order of the output() calls; by default the last layer, with its name.
  std::span<const NetworkOutput> outputs() const { return outputs_; }
  /// Whether output() named the outputs.
  bool has_named_outputs() const { return has_named_outputs_; }
  /// Shape of the first input for one sample, without the batch.
  const Shape& input_shape() const { return inputs_.front().shape; }
  /// Shape of the first output for one sample.
  const Shape& output_shape() const { return shape(outputs_.front().node); }
  /// Shape of the input or layer `node` for one sample.
  const Shape& shape(NodeId node) const {
    return is_input(node) ? inputs_[input_index(node)].shape
                          : nodes_[static_cast<std::size_t>(node)].output_shape;
  }
  /// Excludes the parameters whose names match one of `patterns` (ParameterTable::matching) from
  /// training: they have no gradients and no optimizer slots, and never change. A frozen batch
  /// normalization uses its moving statistics in training and does not update them. Throws Error
  /// (input) if a pattern matches nothing, or no parameter remains to train.
  void freeze(std::span<const std::string> patterns);
  /// Multiplies the learning rate of the parameters that match `pattern` by `rate_factor`, and
  /// replaces the weight decay of those that have decay. The last matching call wins. Throws Error
  /// (input) if the pattern matches nothing.
  void set_group(const std::string& pattern, float rate_factor, std::optional<float> weight_decay);
  /// Whether the layer has parameters, all of them frozen.
  bool is_frozen(const Node& node) const;

  /// The layers in the order in which they were added, which is a valid execution order.
  std::span<const Node> nodes() const { return nodes_; }

  /// Tables of the flat arrays; see ParameterTable for their order.
  const ParameterTable& parameters() const { return parameters_; }
  /// The prefix of parameters() that is not frozen: the layout of gradients and optimizer slots.
  const ParameterTable& trained() const { return trained_; }
  /// Arrays that are stored but not trained, such as moving means, in flat memory.
  const ParameterTable& buffers() const { return buffers_; }
  /// Elements at the beginning of the flat buffers that training may change.
  std::size_t changing_buffers() const { return changing_buffers_; }

  /// A human-readable table: layer, output shape, parameters; also the named outputs.
  std::string summary() const;

 private:
  void change(std::string_view where, const std::string& pattern,
              const std::function<void(ParameterInfo&)>& change);
  std::vector<SharedParameter> shareable() const;
  void assign_layout();

  std::string name_;
  std::vector<NetworkInput> inputs_;
  std::vector<NetworkOutput> outputs_;
  bool has_named_outputs_ = false;
  std::vector<Node> nodes_;
  std::vector<std::vector<ParameterInfo>> node_parameters_;
  std::vector<std::vector<ParameterInfo>> node_buffers_;
  ParameterTable parameters_;
  ParameterTable trained_;
  ParameterTable buffers_;
  std::size_t changing_buffers_ = 0;
};

/// The activation that produces the output of `node`: "softmax", "sigmoid", or empty for any other.
/// Skips layers that keep the values, such as Flatten.
std::string_view final_activation(const Network& network, NodeId node);

}  // namespace lockstep::inline v0::model
