#include "lockstep/model/network/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/text.h"
#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

namespace {

template <typename Named>
std::vector<std::string_view> names_of(const std::vector<Named>& all) {
  std::vector<std::string_view> names;
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

// Checks that exactly the inputs read as indices are int32.
void check_types(const Layer& layer, const std::string& where, std::span<const NodeId> inputs,
                 std::span<const NetworkInput> all) {
  const std::optional<std::size_t> indices = layer.index_input(inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const bool is_int32 =
        is_input(inputs[k]) && all[input_index(inputs[k])].type == ElementType::int32;
    if (is_int32 == (indices == k)) continue;
    throw Error(ErrorCategory::input, where,
                is_int32 ? "expected float32 values" : "expected an int32 input of the network",
                is_int32
                    ? fmt::format("got the int32 input \"{}\"", all[input_index(inputs[k])].name)
                    : "got float32 values");
  }
}

}  // namespace

Network::Network(Shape input_shape, std::string name)
    : Network({NetworkInput{.name = "features", .shape = std::move(input_shape)}},
              std::move(name)) {}

Network::Network(std::initializer_list<NetworkInput> inputs, std::string name)
    : Network(std::span(inputs.begin(), inputs.size()), std::move(name)) {}

Network::Network(std::span<const NetworkInput> inputs, std::string name) : name_(std::move(name)) {
  if (inputs.empty())
    throw Error(ErrorCategory::input, "network", "expected at least one input", "got none");
  for (const NetworkInput& input : inputs) {
    const std::string where =
        inputs.size() == 1 ? "network" : fmt::format("network input \"{}\"", input.name);
    if (input.type != ElementType::float32 && input.type != ElementType::int32)
      throw Error(ErrorCategory::input, where, "expected an input of type float32 or int32",
                  fmt::format("got {}", lockstep::to_string(input.type)));
    if ((input.shape.empty() && input.type != ElementType::int32) ||
        std::ranges::any_of(input.shape, [](std::int64_t extent) { return extent <= 0; }))
      throw Error(ErrorCategory::input, where, "expected an input shape of positive extents",
                  fmt::format("got {}", to_string(input.shape)));
    if (input.name.empty() ||
        std::ranges::find(inputs_, input.name, &NetworkInput::name) != inputs_.end())
      throw Error(ErrorCategory::input, "network", "expected a unique name for each input",
                  input.name.empty() ? "got an empty one"
                                     : fmt::format("\"{}\" is already in use", input.name));
    inputs_.push_back(input);
  }
  outputs_ = {{.name = inputs_.front().name, .node = kInput}};
}

NodeId Network::input(std::string_view name) const {
  const auto found = std::ranges::find(inputs_, name, &NetworkInput::name);
  if (found != inputs_.end()) return kInput - static_cast<NodeId>(found - inputs_.begin());
  const std::vector<std::string_view> known = names_of(inputs_);
  throw Error(ErrorCategory::input, name_, "expected an input of the network: " + list_names(known),
              got_name(name, known));
}

void Network::output(std::string name, NodeId node) {
  if (node < 0 || node > last())
    throw Error(ErrorCategory::input, name_,
                fmt::format("expected a layer of the network for the output \"{}\"", name),
                fmt::format("got node {} of {}", node, nodes_.size()));
  if (!std::exchange(has_named_outputs_, true)) outputs_.clear();
  for (const NetworkOutput& other : outputs_)
    if (name == other.name || node == other.node)
      throw Error(ErrorCategory::input, name_, "expected a unique name and layer for each output",
                  fmt::format("got \"{}\" (layer {}) after \"{}\" (layer {})", name,
                              nodes_[node].name, other.name, nodes_[other.node].name));
  outputs_.push_back({.name = std::move(name), .node = node});
}

void Network::check_complete() const {
  if (nodes_.empty())
    throw Error(ErrorCategory::input, name_, "expected a network of at least one layer",
                "got none");
  std::vector<bool> is_needed(nodes_.size());
  std::vector<bool> is_read(inputs_.size());
  for (const NetworkOutput& output : outputs_) is_needed[output.node] = true;
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    if (!is_needed[i]) continue;
    for (const NodeId input : nodes_[i].inputs)
      (is_input(input) ? is_read[input_index(input)] : is_needed[input]) = true;
  }
  for (std::size_t k = 0; k < inputs_.size(); ++k)
    if (!is_read[k])
      throw Error(ErrorCategory::input, name_,
                  "expected outputs that depend on every input: " + list_names(names_of(outputs_)),
                  fmt::format("none depends on \"{}\"", inputs_[k].name));
}

NodeId Network::add_node(std::shared_ptr<const Layer> layer, std::vector<NodeId> inputs,
                         std::string name) {
  const std::string kind = layer->kind();
  const auto taken = [this](const std::string& candidate) {
    return std::ranges::find(nodes_, candidate, &Node::name) != nodes_.end();
  };
  if (name.empty()) {
    name = kind;
    for (int i = 1; taken(name); ++i) name = fmt::format("{}_{}", kind, i);
  } else if (taken(name)) {
    throw Error(ErrorCategory::input, "network", "expected a unique name for each layer",
                fmt::format("\"{}\" is already in use", name));
  }

  const std::string where = fmt::format("layer {} ({})", name, kind);
  std::vector<Shape> shapes;
  for (const NodeId input : inputs) {
    if (input > last() || (is_input(input) && input_index(input) >= inputs_.size()))
      throw Error(ErrorCategory::input, where, "expected inputs that were added before it",
                  fmt::format("got node {} of {}", input, nodes_.size()));
    shapes.push_back(shape(input));
  }
  check_types(*layer, where, inputs, inputs_);
  BuildContext context(name, kind, std::move(shapes), shareable());
  Shape output = layer->build(context);
  if (inputs.empty())
    throw Error(ErrorCategory::input, where, "expected at least one input", "got none");
  nodes_.push_back({.name = std::move(name),
                    .layer = std::move(layer),
                    .inputs = std::move(inputs),
                    .output_shape = std::move(output),
                    .parameters = {},
                    .buffers = {}});
  const auto owner = std::ranges::find(nodes_, context.owner(), &Node::name);
  if (owner != nodes_.end()) nodes_.back().owner = static_cast<NodeId>(owner - nodes_.begin());
  node_parameters_.push_back(context.release_parameters());
  node_buffers_.push_back(context.release_buffers());
  if (!has_named_outputs_) outputs_ = {{.name = nodes_.back().name, .node = last()}};
  assign_layout();
  return last();
}

// The parameters that another layer may share, each once, because only the declaring layer adds to
// a gradient.
std::vector<SharedParameter> Network::shareable() const {
  std::vector<bool> is_shared(nodes_.size());
  for (const Node& node : nodes_)
    if (node.owner) is_shared[static_cast<std::size_t>(*node.owner)] = true;
  std::vector<SharedParameter> shareable;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (!is_shared[i] && nodes_[i].layer->traits().shares_parameter &&
        dynamic_cast<const BuiltinLayer*>(nodes_[i].layer.get()) != nullptr)
      shareable.push_back({nodes_[i].name, node_parameters_[i].front().shape});
  return shareable;
}

void Network::freeze(std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns)
    change("freeze", pattern, [](ParameterInfo& parameter) { parameter.trained = false; });
  if (!patterns.empty() && trained_.entries().empty())
    throw Error(ErrorCategory::input, "freeze", "expected patterns that leave parameters to train",
                fmt::format("got {}, which freeze all {}", fmt::join(patterns, ", "),
                            parameters_.entries().size()));
}

void Network::set_group(const std::string& pattern, float rate_factor,
                        std::optional<float> weight_decay) {
  change("group", pattern, [&](ParameterInfo& parameter) {
    parameter.rate_factor = rate_factor;
    parameter.weight_decay = weight_decay;
  });
}

void Network::change(std::string_view where, const std::string& pattern,
                     const std::function<void(ParameterInfo&)>& change) {
  std::set<std::string_view> names;
  for (const std::size_t index : parameters_.matching(where, pattern))
    names.insert(parameters_.entries()[index].name);
  for (auto& parameters : node_parameters_)
    for (ParameterInfo& parameter : parameters)
      if (names.contains(parameter.name)) change(parameter);
  assign_layout();
}

bool Network::is_frozen(const Node& node) const {
  return !node.parameters.empty() && std::ranges::none_of(node.parameters, [&](std::size_t p) {
    return parameters_.entries()[p].trained;
  });
}

void Network::assign_layout() {
  std::vector<ParameterInfo> parameters;
  std::vector<ParameterInfo> trained;
  std::vector<ParameterInfo> buffers;
  // The flat arrays are in backward order: from the last layer to the first; frozen ones follow.
  for (const bool frozen : {false, true}) {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      Node& node = nodes_[i];
      const std::vector<ParameterInfo>& declared = node_parameters_[i];
      const std::size_t first = node.owner ? 1 : 0;  // skips the shared parameter
      node.parameters.resize(first + declared.size());
      for (std::size_t p = 0; p < declared.size(); ++p) {
        if (declared[p].trained == frozen) continue;
        node.parameters[first + p] = parameters.size();
        parameters.push_back(declared[p]);
      }
      const bool keeps_buffers = node.layer->traits().keeps_buffers_if_frozen &&
                                 !declared.empty() &&
                                 std::ranges::none_of(declared, &ParameterInfo::trained);
      if (keeps_buffers != frozen) continue;
      node.buffers.clear();
      for (const ParameterInfo& buffer : node_buffers_[i]) {
        node.buffers.push_back(buffers.size());
        buffers.push_back(buffer);
      }
    }
    if (frozen) break;
    trained = parameters;
    changing_buffers_ = ParameterTable(buffers).flat_size();
  }
  for (Node& node : nodes_)
    if (node.owner) node.parameters.front() = nodes_[*node.owner].parameters.front();
  parameters_ = ParameterTable(std::move(parameters));
  trained_ = ParameterTable(std::move(trained));
  buffers_ = ParameterTable(std::move(buffers));
}

std::string Network::summary() const {
  std::string text = fmt::format("{:<32} {:<20} {:>12}\n", "layer", "output", "parameters");
  for (const NetworkInput& input : inputs_)
    text +=
        fmt::format("{:<32} {:<20} {:>12}\n",
                    inputs_.size() == 1 ? "input" : fmt::format("input {}", printable(input.name)),
                    to_string(input.shape), input.type == ElementType::int32 ? "int32" : "");
  for (const Node& node : nodes_) {
    std::size_t count = 0;
    for (const std::size_t p : node.own_parameters()) count += parameters_.entries()[p].count;
    text += fmt::format("{:<32} {:<20} {:>12}\n", printable(node.name),
                        to_string(node.output_shape), count ? fmt::format("{}", count) : "");
  }
  for (const NetworkOutput& output : outputs_)
    if (has_named_outputs_)
      text += fmt::format("{:<32} {:<20}\n", fmt::format("output {}", printable(output.name)),
                          printable(nodes_[output.node].name));
  text += fmt::format("{:<32} {:<20} {:>12}\n", "total", "", parameters_.element_count());
  if (trained_.element_count() != parameters_.element_count())
    text += fmt::format("{:<32} {:<20} {:>12}\n", "trained", "", trained_.element_count());
  return text;
}

std::string_view final_activation(const Network& network, NodeId node) {
  while (!is_input(node)) {
    const Node& last = network.nodes()[static_cast<std::size_t>(node)];
    const std::string kind = last.layer->kind();
    if (kind == "softmax") return "softmax";
    if (kind == "sigmoid") return "sigmoid";
    if (kind != "flatten" && kind != "reshape" && kind != "dropout") break;
    node = last.inputs.front();
  }
  return {};
}

}  // namespace lockstep::inline v0::model
