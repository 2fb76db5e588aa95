#include "lockstep/onnx/export/graph_builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/float16.h"

namespace lockstep::inline v0::onnx {
namespace {

std::vector<Float16> narrowed(std::string_view name, std::span<const float> values) {
  constexpr std::uint16_t kInfinity = 0x7c00;
  std::vector<Float16> halves(values.size());
  narrow(values, halves);
  for (std::size_t i = 0; i < values.size(); ++i)
    if ((halves[i].bits & 0x7fff) == kInfinity && std::isfinite(values[i]))
      throw Error(ErrorCategory::input, std::string(name),
                  "expected weights that float16 can hold, at most 65504",
                  fmt::format("got {}", values[i]));
  return halves;
}

}  // namespace

std::string GraphBuilder::unique_name(std::string_view wanted) {
  std::string name(wanted);
  for (int number = 1; !names_.insert(name).second; ++number)
    name = fmt::format("{}_{}", wanted, number);
  return name;
}

std::string GraphBuilder::add(std::string type, std::vector<std::string> inputs,
                              std::string_view output, std::vector<Attribute> attributes) {
  std::string name = unique_name(output);
  add_node(std::move(type), std::move(inputs), {name}, std::move(attributes));
  return name;
}

std::vector<std::string> GraphBuilder::add_split(std::string type, std::vector<std::string> inputs,
                                                 std::string_view output, std::size_t outputs,
                                                 std::vector<Attribute> attributes) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < outputs; ++i)
    names.push_back(unique_name(fmt::format("{}_{}", output, i)));
  add_node(std::move(type), std::move(inputs), names, std::move(attributes));
  return names;
}

void GraphBuilder::add_node(std::string type, std::vector<std::string> inputs,
                            std::vector<std::string> outputs, std::vector<Attribute> attributes) {
  const auto named =
      std::ranges::find_if(outputs, [](const std::string& output) { return !output.empty(); });
  std::string name = named == outputs.end() ? type : *named;
  graph.nodes.push_back({.name = std::move(name),
                         .type = std::move(type),
                         .domain = {},
                         .inputs = std::move(inputs),
                         .outputs = std::move(outputs),
                         .attributes = std::move(attributes)});
}

std::string GraphBuilder::tensor(Tensor tensor) {
  tensor.name = unique_name(tensor.name);
  graph.initializers.push_back(std::move(tensor));
  return graph.initializers.back().name;
}

std::string GraphBuilder::weights(std::string_view name, std::vector<std::int64_t> shape,
                                  std::span<const float> values) {
  if (stores_float16_ && shape.size() > 1 && values.size() >= kFloat16Elements)
    return add("Cast",
               {tensor({.name = fmt::format("{}/float16", name),
                        .type = TensorType::float16,
                        .shape = std::move(shape),
                        .bytes = bytes_of<Float16>(narrowed(name, values))})},
               name, {{"to", static_cast<std::int64_t>(TensorType::float32)}});
  return floats(name, std::move(shape), values);
}

std::string GraphBuilder::floats(std::string_view name, std::vector<std::int64_t> shape,
                                 std::span<const float> values) {
  return tensor({.name = std::string(name),
                 .type = TensorType::float32,
                 .shape = std::move(shape),
                 .bytes = bytes_of(values)});
}

std::string GraphBuilder::number(float value) {
  std::string& name = shared_[fmt::format("number {:a}", value)];
  if (name.empty()) name = floats(fmt::format("number/{}", value), {}, {&value, 1});
  return name;
}

std::string GraphBuilder::integers(const std::vector<std::int64_t>& values) {
  const std::string text = fmt::format("integers/{}", fmt::join(values, ","));
  std::string& name = shared_[text];
  if (name.empty())
    name = tensor({.name = text,
                   .type = TensorType::int64,
                   .shape = {static_cast<std::int64_t>(values.size())},
                   .bytes = bytes_of<std::int64_t>(values)});
  return name;
}

void GraphBuilder::output(const std::string& from, std::string to, TensorType type,
                          std::vector<Extent> shape) {
  const auto is_from = [&](const auto& one) { return one.name == from; };
  const bool is_result = std::ranges::none_of(graph.inputs, is_from) &&
                         std::ranges::none_of(graph.outputs, is_from) &&
                         std::ranges::none_of(graph.initializers, is_from);
  if (const auto known = outputs_.find(from); known != outputs_.end()) {
    add_node("Identity", {known->second}, {to});
  } else if (is_result) {
    outputs_.emplace(from, to);
    for (Node& node : graph.nodes) {
      std::ranges::replace(node.inputs, from, to);
      std::ranges::replace(node.outputs, from, to);
    }
  } else {
    add_node("Identity", {from}, {to});
  }
  graph.outputs.push_back({.name = std::move(to), .type = type, .shape = std::move(shape)});
}

}  // namespace lockstep::inline v0::onnx
