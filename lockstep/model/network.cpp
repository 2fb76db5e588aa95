#include "lockstep/model/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lockstep/base/error.h"

namespace lockstep::model {

Network::Network(Shape input_shape, std::string name)
    : name_(std::move(name)), input_shape_(std::move(input_shape)) {
  if (input_shape_.empty() ||
      std::ranges::any_of(input_shape_, [](std::int64_t extent) { return extent <= 0; }))
    throw Error(ErrorCategory::input, "network", "expected an input shape of positive extents",
                fmt::format("got {}", to_string(input_shape_)));
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

  std::vector<Shape> shapes;
  for (const NodeId input : inputs) {
    if (input < kInput || input > last())
      throw Error(ErrorCategory::input, fmt::format("layer {} ({})", name, kind),
                  "expected inputs that were added before it",
                  fmt::format("got node {} of {}", input, nodes_.size()));
    shapes.push_back(shape(input));
  }
  BuildContext context(name, kind, std::move(shapes));
  Shape output = layer->build(context);
  nodes_.push_back({.name = std::move(name),
                    .layer = std::move(layer),
                    .inputs = std::move(inputs),
                    .output_shape = std::move(output),
                    .parameters = {},
                    .buffers = {}});
  node_parameters_.push_back(context.take_parameters());
  node_buffers_.push_back(context.take_buffers());
  lay_out();
  return last();
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
  lay_out();
}

bool Network::is_frozen(const Node& node) const {
  return !node.parameters.empty() && std::ranges::none_of(node.parameters, [&](std::size_t p) {
    return parameters_.entries()[p].trained;
  });
}

void Network::lay_out() {
  std::vector<ParameterInfo> parameters;
  std::vector<ParameterInfo> trained;
  std::vector<ParameterInfo> buffers;
  // The flat arrays are in backward order: from the last layer to the first; frozen ones follow.
  for (const bool frozen : {false, true}) {
    for (std::size_t i = nodes_.size(); i-- > 0;) {
      Node& node = nodes_[i];
      const std::vector<ParameterInfo>& declared = node_parameters_[i];
      node.parameters.resize(declared.size());
      for (std::size_t p = 0; p < declared.size(); ++p) {
        if (declared[p].trained == frozen) continue;
        node.parameters[p] = parameters.size();
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
  parameters_ = ParameterTable(std::move(parameters));
  trained_ = ParameterTable(std::move(trained));
  buffers_ = ParameterTable(std::move(buffers));
}

std::string Network::summary() const {
  std::string text = fmt::format("{:<32} {:<20} {:>12}\n", "layer", "output", "parameters");
  text += fmt::format("{:<32} {:<20} {:>12}\n", "input", to_string(input_shape_), "");
  for (const Node& node : nodes_) {
    std::size_t count = 0;
    for (const std::size_t p : node.parameters) count += parameters_.entries()[p].count;
    text += fmt::format("{:<32} {:<20} {:>12}\n", node.name, to_string(node.output_shape),
                        count ? fmt::format("{}", count) : "");
  }
  text += fmt::format("{:<32} {:<20} {:>12}\n", "total", "", parameters_.element_count());
  if (trained_.element_count() != parameters_.element_count())
    text += fmt::format("{:<32} {:<20} {:>12}\n", "trained", "", trained_.element_count());
  return text;
}

}  // namespace lockstep::model
