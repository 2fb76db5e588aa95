#include "lockstep/onnx/import/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

/// Adding a layer takes time proportional to the number of layers.
constexpr std::size_t kMaxLayers = 10000;
/// Maximum number of weights; shared ones count once per layer.
constexpr std::size_t kMaxWeights = std::size_t{1} << 30;
constexpr std::int64_t kOldestOpset = 11;
constexpr std::int64_t kNewestOpset = 26;

std::size_t constant_elements(const Model& model) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : model.graph.initializers) bytes += tensor.bytes.size();
  return bytes;
}

/// The module path of a PyTorch node: "layer1.0.conv1" for "/layer1/layer1.0/conv1/Conv", where
/// each container repeats its path; of a TensorFlow node: "model.dense" for "model/dense/MatMul".
std::string path_of(std::string_view node) {
  std::string path;
  std::size_t begin = 0;
  for (std::size_t end = node.find('/'); end != std::string_view::npos;
       begin = end + 1, end = node.find('/', begin)) {
    const std::string_view part = node.substr(begin, end - begin);
    if (part.empty()) continue;
    if (path.empty() || part == path || (part.starts_with(path) && part[path.size()] == '.'))
      path = part;
    else if (const std::size_t dot = path.rfind('.');
             dot != std::string::npos && part.starts_with(path.substr(dot + 1) + "."))
      path = path.substr(0, dot + 1) + std::string(part);
    else
      path += "." + std::string(part);
  }
  return path;
}

/// Far below an overflow of the number of elements.
bool is_addressable(const Shape& shape) {
  double elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<double>(extent);
  return elements <= 1099511627776.0;
}

}  // namespace

Importer::Importer(const Model& model, std::string_view where, const ImportOptions& options)
    : model_(model),
      where_(where),
      options_(options),
      network_(Shape{1}, options.name),
      folder_(4 * constant_elements(model) + (std::size_t{1} << 23)) {}

std::span<const Importer::Operator> Importer::operators() {
  static constexpr std::array kOperators{
      Operator{"Add", &Importer::import_combination},
      Operator{"AveragePool", &Importer::import_pooling},
      Operator{"BatchNormalization", &Importer::import_batch_normalization},
      Operator{"Cast", &Importer::import_cast},
      Operator{"Clip", &Importer::import_function},
      Operator{"Concat", &Importer::import_concatenation},
      Operator{"Conv", &Importer::import_convolution},
      Operator{"ConvTranspose", &Importer::import_transposed_convolution},
      Operator{"DequantizeLinear", &Importer::import_dequantize},
      Operator{"Div", &Importer::import_combination},
      Operator{"Dropout", &Importer::import_dropout},
      Operator{"Equal", &Importer::import_combination},
      Operator{"Flatten", &Importer::import_flatten},
      Operator{"GRU", &Importer::import_recurrent},
      Operator{"Gather", &Importer::import_gather},
      Operator{"Gemm", &Importer::import_gemm},
      Operator{"GlobalAveragePool", &Importer::import_global_pooling},
      Operator{"GlobalMaxPool", &Importer::import_global_pooling},
      Operator{"Identity", &Importer::import_identity},
      Operator{"Greater", &Importer::import_combination},
      Operator{"GreaterOrEqual", &Importer::import_combination},
      Operator{"GroupNormalization", &Importer::import_group_normalization},
      Operator{"InstanceNormalization", &Importer::import_group_normalization},
      Operator{"LSTM", &Importer::import_recurrent},
      Operator{"LayerNormalization", &Importer::import_layer_normalization},
      Operator{"Less", &Importer::import_combination},
      Operator{"LessOrEqual", &Importer::import_combination},
      Operator{"MatMul", &Importer::import_product},
      Operator{"MaxPool", &Importer::import_pooling},
      Operator{"Mul", &Importer::import_combination},
      Operator{"PRelu", &Importer::import_prelu},
      Operator{"Pad", &Importer::import_padding},
      Operator{"Pow", &Importer::import_combination},
      Operator{"QuantizeLinear", &Importer::import_quantize},
      Operator{"RNN", &Importer::import_recurrent},
      Operator{"ReduceMax", &Importer::import_reduction},
      Operator{"ReduceMean", &Importer::import_reduction},
      Operator{"Reshape", &Importer::import_reshape},
      Operator{"Resize", &Importer::import_resize},
      Operator{"Shape", &Importer::import_shape},
      Operator{"Slice", &Importer::import_slice},
      Operator{"Softmax", &Importer::import_softmax},
      Operator{"Split", &Importer::import_split},
      Operator{"Squeeze", &Importer::import_squeeze},
      Operator{"Sub", &Importer::import_combination},
      Operator{"Transpose", &Importer::import_transpose},
      Operator{"Unsqueeze", &Importer::import_unsqueeze},
      Operator{"Where", &Importer::import_choice}};
  return kOperators;
}

ImportedNetwork Importer::run() {
  if (model_.opset < kOldestOpset || model_.opset > kNewestOpset)
    throw Error(ErrorCategory::input, where_,
                fmt::format("expected version {} to {} of the operators of ONNX (\"opset\")",
                            kOldestOpset, kNewestOpset),
                fmt::format("got {}", model_.opset));
  index_nodes();
  find_patterns();
  find_needed();
  add_inputs();
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (needed_[i] && !done_.contains(nodes_[i])) import_or_note(*nodes_[i]);
  if (!refusals_.empty()) refuse_all();
  add_outputs();
  try {
    network_.check_complete();
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, where_, "expected a complete network", error.what());
  }
  std::vector<float> parameters = filled(network_.parameters());
  std::vector<float> buffers = filled(network_.buffers());
  return {.network = std::move(network_),
          .parameters = std::move(parameters),
          .buffers = std::move(buffers)};
}

void Importer::index_nodes() {
  const auto refuse_twice = [&](const std::string& name) {
    throw Error(ErrorCategory::input, where_, "expected a unique name for each tensor",
                fmt::format("two are called \"{}\"", name));
  };
  for (const Tensor& tensor : model_.graph.initializers)
    if (!initializers_.emplace(tensor.name, &tensor).second) refuse_twice(tensor.name);
  for (std::size_t i = 0; i < model_.graph.nodes.size(); ++i)
    for (const std::string& output : model_.graph.nodes[i].outputs)
      if (!output.empty() &&
          (initializers_.contains(output) || !producers_.emplace(output, i).second))
        refuse_twice(output);
}

/// Nodes whose outputs only patterns read are then not needed.
void Importer::find_patterns() {
  const LayerPatterns patterns(model_.graph);
  for (const Node& node : model_.graph.nodes) {
    nodes_.push_back(&node);
    auto found = patterns.find(node);
    if (!found) continue;
    const LayerPattern& pattern = found_patterns_.emplace_back(std::move(*found));
    nodes_.back() = &pattern.node;
    patterns_.emplace(&pattern.node, &pattern);
  }
}

void Importer::find_needed() {
  needed_.assign(nodes_.size(), false);
  for (const Value& output : model_.graph.outputs) outputs_.insert(output.name);
  std::set<std::string_view> wanted(outputs_.begin(), outputs_.end());
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    needed_[i] = std::ranges::any_of(nodes_[i]->outputs, [&](const std::string& output) {
      return !output.empty() && wanted.contains(output);
    });
    if (needed_[i]) wanted.insert(nodes_[i]->inputs.begin(), nodes_[i]->inputs.end());
  }
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (needed_[i])
      for (const std::string& input : nodes_[i]->inputs)
        if (!input.empty()) readers_[input].push_back(nodes_[i]);
}

/// The axes of the sample in the order that the network has: channels last if the graph has them
/// first.
Axes Importer::input_order(const Value& value) const {
  const std::size_t rank = value.shape.size() - 1;
  Axes same;
  for (std::size_t axis = 0; axis < rank; ++axis) same.push_back(axis);
  if (rank != 2 && rank != 3) return same;
  Axes last = rank == 3 ? Axes{1, 2, 0} : Axes{1, 0};
  // Finds the first reader that depends on the order.
  std::string name = value.name;
  for (int steps = 0; steps < 64; ++steps) {
    const auto found = readers_.find(name);
    if (found == readers_.end() || found->second.empty()) break;
    const Node& reader = *found->second.front();
    for (const std::string_view type :
         {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool",
          "BatchNormalization", "GroupNormalization", "InstanceNormalization", "Resize"})
      if (reader.type == type) return last;
    if (reader.type == "Transpose") {
      const auto order = Attributes(reader).integers("perm");
      const std::vector<std::int64_t> to_first =
          rank == 3 ? std::vector<std::int64_t>{0, 3, 1, 2} : std::vector<std::int64_t>{0, 2, 1};
      if (order == to_first) return same;
      break;
    }
    const bool keeps_order = std::ranges::any_of(
        std::initializer_list<std::string_view>{"Pad", "Relu", "Identity", "Cast", "Mul", "Add",
                                                "Sub", "Div", "Dropout", "Clip", "QuantizeLinear",
                                                "DequantizeLinear"},
        [&](std::string_view type) { return reader.type == type; });
    if (!keeps_order || reader.outputs.empty()) break;
    name = reader.outputs.front();
  }
  if (rank == 2) return same;
  // For example a flattened image, with few channels first or last.
  const auto is_few = [&](std::size_t axis) {
    const auto* const extent = std::get_if<std::int64_t>(&value.shape[axis]);
    return extent != nullptr && *extent <= 4;
  };
  return is_few(3) && !is_few(1) ? same : last;
}

/// The extents of a sample of an input. One that the file leaves free is that of the data, whose
/// samples have the axes `order`, or 0.
Shape Importer::stated_extents(const Value& value, const Axes& order) const {
  const auto& known = options_.inputs;
  auto found = std::ranges::find(known, value.name, &model::NetworkInput::name);
  if (found == known.end() && known.size() == 1) found = known.begin();
  const bool fits = found != known.end() && found->shape.size() == order.size();
  Shape extents;
  for (std::size_t axis = 0; axis + 1 < value.shape.size(); ++axis) {
    const auto* const extent = std::get_if<std::int64_t>(&value.shape[axis + 1]);
    if (extent != nullptr && *extent > 0)
      extents.push_back(*extent);
    else
      extents.push_back(fits ? found->shape[static_cast<std::size_t>(
                                   std::ranges::find(order, axis) - order.begin())]
                             : 0);
  }
  return extents;
}

void Importer::add_inputs() {
  std::vector<model::NetworkInput> inputs;
  std::vector<Array> arrays;
  for (const Value& value : model_.graph.inputs) {
    const bool is_needed = readers_.contains(value.name) || outputs_.contains(value.name);
    const auto refuse_input = [&](std::string_view expected, const std::string& actual) {
      throw Error(ErrorCategory::input, where_, expected,
                  fmt::format("the input \"{}\" {}", value.name, actual));
    };
    if (initializers_.contains(value.name) || producers_.contains(value.name) ||
        tensors_.contains(value.name))
      refuse_input("expected a unique name for each tensor", "has that of another");
    if (!is_needed) continue;
    const bool is_indices = value.type == TensorType::int64 || value.type == TensorType::int32;
    if (!is_indices && value.type != TensorType::float32 && value.type != TensorType::float16 &&
        value.type != TensorType::bfloat16 && value.type != TensorType::float64)
      refuse_input("expected inputs of floating-point numbers, int64 or int32",
                   fmt::format("is of the type {}", static_cast<std::int32_t>(value.type)));
    if (value.shape.empty())
      refuse_input("expected inputs whose first axis is the samples", "has no axis");
    if (value.shape.size() > 8) refuse_input("expected inputs of at most 8 axes", "has more");
    const auto* const stated = std::get_if<std::int64_t>(&value.shape.front());
    if (stated != nullptr && *stated > 0) samples_ = *stated;
    Array array;
    array.node = model::kInput - static_cast<NodeId>(inputs.size());
    array.shape = {kSampleCount};
    array.order = input_order(value);
    if (is_indices) std::ranges::sort(array.order);
    const Shape extents = stated_extents(value, array.order);
    for (std::size_t axis = 1; axis < value.shape.size(); ++axis) {
      const std::int64_t extent = extents[axis - 1];
      if (extent <= 0 || extent >= (std::int64_t{1} << 31)) {
        const auto* const name = std::get_if<std::string>(&value.shape[axis]);
        refuse_input(
            "expected fixed extents but for the number of samples, the first axis, or data that "
            "has them",
            fmt::format("has {} as axis {}",
                        name != nullptr
                            ? fmt::format("\"{}\"", *name)
                            : fmt::format("{}", std::get<std::int64_t>(value.shape[axis])),
                        axis));
      }
      array.shape.push_back(extent);
    }
    array.axes = array.sample();
    if (!is_addressable(array.axes))
      refuse_input("expected inputs of at most 2^40 elements", "has more");
    Shape shape;
    for (const std::size_t axis : array.order) shape.push_back(array.axes[axis]);
    inputs.push_back({.name = value.name,
                      .shape = std::move(shape),
                      .type = is_indices ? ElementType::int32 : ElementType::float32});
    tensors_.emplace(value.name, array);
  }
  names_.insert("input");
  for (const model::NetworkInput& input : inputs) names_.insert(input.name);
  if (inputs.empty()) return;  // an output is then a constant, which is rejected
  try {
    const std::string name = network_.name();
    // As in descriptions, the name of the only input does not matter.
    network_ = inputs.size() == 1 && inputs.front().type == ElementType::float32
                   ? model::Network(inputs.front().shape, name)
                   : model::Network(std::span<const model::NetworkInput>(inputs), name);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, where_, "expected inputs that a network reads", error.what());
  }
}

/// Imports a node unless it reads what a refused node computes, so that one message names all that
/// a file needs.
void Importer::import_or_note(const Node& node) {
  const bool is_known = std::ranges::none_of(
      node.inputs, [&](const std::string& input) { return unknown_.contains(input); });
  try {
    if (!is_supported(node)) {
      const std::string domain =
          node.domain.empty() ? "" : fmt::format(" of the domain \"{}\"", node.domain);
      refuse(node, "expected a supported operator (docs/models.md)",
             "this one is not supported" + domain);
    }
    if (is_known) return import_node(node);
  } catch (const Error& error) {
    if (error.category() != ErrorCategory::input || error.message().where != where_) throw;
    refusals_.push_back(error.message());
  }
  unknown_.insert(node.outputs.begin(), node.outputs.end());
}

void Importer::refuse_all() const {
  constexpr std::size_t kMaxListed = 12;
  if (refusals_.size() == 1) throw Error(ErrorCategory::input, refusals_.front());
  // Nodes that differ in their names only are listed once.
  struct Kind {
    std::string reason;
    std::string text;
    std::size_t nodes = 0;
  };
  std::vector<Kind> kinds;
  for (const ErrorMessage& refusal : refusals_) {
    const std::string& actual = refusal.actual;
    const std::size_t name = std::min(actual.find(" (node "), actual.size());
    const std::size_t end = std::min(actual.find("\"): ", name), actual.size());
    const std::string reason = actual.substr(0, name) + actual.substr(end);
    auto found = std::ranges::find(kinds, reason, &Kind::reason);
    if (found == kinds.end())
      found = kinds.insert(kinds.end(), {reason, fmt::format("{} ({})", actual, refusal.expected)});
    ++found->nodes;
  }
  std::string text;
  for (std::size_t k = 0; k < std::min(kinds.size(), kMaxListed); ++k)
    text += fmt::format("{} {}{}", k == 0 ? "" : ";", kinds[k].text,
                        kinds[k].nodes > 1 ? fmt::format(", {} nodes", kinds[k].nodes) : "");
  if (kinds.size() > kMaxListed) text += fmt::format("; and {} more", kinds.size() - kMaxListed);
  throw Error(ErrorCategory::input, where_,
              "expected nodes that Lockstep can import (docs/models.md)",
              fmt::format("it has {} others:{}", refusals_.size(), text));
}

/// Whether there is a way to import the operator.
bool Importer::is_supported(const Node& node) const {
  return patterns_.contains(&node) ||
         (node.domain.empty() &&
          (std::ranges::find(operators(), node.type, &Operator::type) != operators().end() ||
           element_function(node) != nullptr || ConstantFolder::supports(node)));
}

void Importer::import_node(const Node& node) {
  if (node.outputs.empty()) return;
  if (const auto pattern = patterns_.find(&node); pattern != patterns_.end())
    return import_pattern(node, *pattern->second);
  if (fold(node)) return;
  const auto found = std::ranges::find(operators(), node.type, &Operator::type);
  if (node.domain.empty() && element_function(node) != nullptr) return import_function(node);
  if (found == operators().end())
    refuse(node, "expected an operator that Lockstep supports on inputs of a graph",
           "this one is supported on constants only (docs/models.md)");
  (this->*found->import)(node);
}

bool Importer::fold(const Node& node) {
  std::vector<const Constant*> inputs;
  for (const std::string& name : node.inputs) {
    inputs.push_back(nullptr);
    if (name.empty()) continue;
    inputs.back() = std::get_if<Constant>(&imported(node, name));
    if (inputs.back() == nullptr) return false;
  }
  for (std::size_t output = 0; output < node.outputs.size(); ++output) {
    if (output > 0 && !is_used(node, output)) continue;
    auto constant = folder_.fold(node, inputs, output, model_.opset, where_);
    if (!constant) return false;
    constant->is_weight = std::ranges::any_of(
        inputs, [](const Constant* input) { return input != nullptr && input->is_weight; });
    set(node, std::move(*constant), output);
  }
  return true;
}

void Importer::add_outputs() {
  const std::vector<Value>& outputs = model_.graph.outputs;
  if (outputs.empty())
    throw Error(ErrorCategory::input, where_, "expected a graph with outputs", "it has none");
  std::vector<std::pair<std::string, NodeId>> ends;
  for (const Value& output : outputs) {
    const auto found = producers_.find(output.name);
    if (found == producers_.end())
      throw Error(ErrorCategory::input, where_, "expected outputs that nodes compute",
                  fmt::format("no node computes \"{}\"", output.name));
    const Node& node = *nodes_[found->second];
    const Array array = materialized(node, output.name);
    if (array.batch() != 0 || array.is_merged())
      refuse(node, "expected outputs whose first axis is the samples",
             fmt::format("of \"{}\" it is axis {}", output.name, array.batch()));
    // An image may stay channels last. All others have the graph's order.
    const bool is_image = array.sample() == array.axes && array.order == Axes{1, 2, 0};
    const NodeId end = is_image ? arranged(node, array, array.order) : plain(node, array);
    if (model::is_input(end))
      refuse(node, "expected outputs that layers compute", "one is an input");
    ends.emplace_back(output.name, end);
  }
  try {
    if (ends.size() > 1 || ends.front().second != network_.last())
      for (const auto& [name, end] : ends) network_.output(name, end);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, where_, "expected a different layer for each output",
                error.what());
  }
}

std::vector<float> Importer::filled(const model::ParameterTable& table) {
  std::vector<float> flat(table.flat_size());
  for (const model::ParameterInfo& entry : table.entries()) {
    const auto found = weights_.find(entry.name);
    LOCKSTEP_CHECK(found != weights_.end());
    LOCKSTEP_CHECK_OP(found->second.size(), ==, entry.count);
    std::ranges::copy(found->second, model::ParameterTable::slice(std::span(flat), entry).begin());
    weights_.erase(found);
  }
  return flat;
}

void Importer::refuse(const Node& node, std::string_view expected, std::string_view actual) const {
  throw Error(ErrorCategory::input, where_, expected,
              fmt::format("{} (node \"{}\"): {}", node.type, node.name, actual));
}

bool Importer::has_input(const Node& node, std::size_t index) const {
  return index < node.inputs.size() && !node.inputs[index].empty();
}

bool Importer::is_used(const Node& node, std::size_t output) const {
  if (output >= node.outputs.size() || node.outputs[output].empty()) return false;
  return readers_.contains(node.outputs[output]) || outputs_.contains(node.outputs[output]);
}

const Imported& Importer::imported(const Node& node, const std::string& name) {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return found->second;
  const auto initializer = initializers_.find(name);
  if (initializer == initializers_.end())
    refuse(node, "expected nodes in an order in which they can run",
           fmt::format("it reads \"{}\", which no earlier node computes", name));
  Constant constant = constant_of(*initializer->second);
  constant.is_weight = constant.floats() != nullptr;
  return tensors_.emplace(name, std::move(constant)).first->second;
}

bool Importer::is_computable(const std::string& name) {
  if (tensors_.contains(name) || initializers_.contains(name)) return true;
  const auto found = producers_.find(name);
  if (found == producers_.end()) return false;
  const Node& producer = *nodes_[found->second];
  const bool reads_constants = std::ranges::all_of(producer.inputs, [&](const std::string& input) {
    return input.empty() || initializers_.contains(input);
  });
  if (!reads_constants || !fold(producer)) return false;
  done_.insert(&producer);
  return true;
}

const Constant* Importer::constant_at(const Node& node, std::size_t index) {
  if (!has_input(node, index)) return nullptr;
  return std::get_if<Constant>(&imported(node, node.inputs[index]));
}

const Constant& Importer::weights_at(const Node& node, std::size_t index) {
  const Constant* const constant = constant_at(node, index);
  if (constant == nullptr || constant->floats() == nullptr || constant->has_batch())
    refuse(node, "expected weights that are constants of floating-point numbers",
           fmt::format("input {} is {}", index, has_input(node, index) ? "not" : "missing"));
  return *constant;
}

std::optional<std::vector<std::int64_t>> Importer::integers_at(const Node& node, std::size_t index,
                                                               const char* attribute) {
  if (!has_input(node, index)) return Attributes(node).integers(attribute);
  const Constant* const constant = constant_at(node, index);
  if (constant == nullptr || constant->integers() == nullptr || constant->has_batch())
    refuse(node, "expected shapes and axes that can be computed before the graph runs",
           fmt::format("input {} depends on the data", index));
  return *constant->integers();
}

Array Importer::any_array_at(const Node& node, std::size_t index) {
  if (!has_input(node, index))
    refuse(node, "expected its inputs", fmt::format("{} is missing", index));
  return materialized(node, node.inputs[index]);
}

Array Importer::array_at(const Node& node, std::size_t index) {
  Array array = any_array_at(node, index);
  if (array.is_merged())
    refuse(node, "expected an input whose samples have an axis of their own",
           "the graph has merged it with another");
  return array;
}

Array Importer::samples_at(const Node& node, std::size_t index) {
  Array array = array_at(node, index);
  if (array.batch() != 0)
    refuse(node, "expected an input whose first axis is the samples",
           fmt::format("it is axis {}", array.batch()));
  return array;
}

void Importer::set(const Node& node, Imported value, std::size_t output) {
  if (const auto* const array = std::get_if<Array>(&value))
    if (array->shape.size() > 16 || !is_addressable(array->sample()))
      refuse(node, "expected arrays of at most 16 axes and 2^40 elements", "its output has more");
  if (output < node.outputs.size() && !node.outputs[output].empty())
    tensors_.insert_or_assign(node.outputs[output], std::move(value));
}

const Node* Importer::only_reader(const std::string& tensor) const {
  const auto found = readers_.find(tensor);
  if (found == readers_.end() || found->second.size() != 1 || outputs_.contains(tensor))
    return nullptr;
  return found->second.front();
}

const Node* Importer::only_reader(const Node& node) const {
  return node.outputs.empty() ? nullptr : only_reader(node.outputs.front());
}

NodeId Importer::add_layer(const Node& node, std::shared_ptr<const model::Layer> layer,
                           std::vector<NodeId> inputs, const std::string& name) {
  if (network_.nodes().size() == kMaxLayers)
    refuse(node, fmt::format("expected a graph of at most {} layers", kMaxLayers), "got more");
  const std::string stem = name.empty() ? layer->kind() : name;
  std::string unique = stem;
  int& next = numbers_[stem];
  while (!names_.insert(unique).second) unique = fmt::format("{}_{}", stem, ++next);
  try {
    return network_.add_node(std::move(layer), std::move(inputs), unique);
  } catch (const Error& error) {
    refuse(node, "expected operators with inputs that layers of Lockstep accept", error.what());
  }
}

void Importer::import_pattern(const Node& node, const LayerPattern& pattern) {
  if (pattern.layer == nullptr) return import_recurrent(node);
  std::vector<NodeId> inputs;
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const Array input = samples_at(node, k);
    if (k < pattern.shapes.size() && input.sample() != pattern.shapes[k])
      refuse(node,
             fmt::format("expected samples of {} as input {} of a layer of the type {}",
                         model::to_string(pattern.shapes[k]), k, pattern.layer->kind()),
             fmt::format("got {}", model::to_string(input.sample())));
    inputs.push_back(plain(node, input));
  }
  Node named;
  named.name = node.name;
  if (pattern.weights != nullptr) named.inputs = {pattern.weights->name};
  Array output;
  output.node = add_layer(node, pattern.layer, inputs, layer_name(named, 0));
  if (pattern.weights != nullptr) {
    const Constant weights = constant_of(*pattern.weights);
    const std::string& name = network_.nodes()[static_cast<std::size_t>(output.node)].name;
    const model::ParameterInfo* const entry =
        network_.parameters().find(fmt::format("{}/{}", name, pattern.parameter));
    LOCKSTEP_CHECK(entry != nullptr);
    if (weights.floats() == nullptr || weights.floats()->size() != entry->count)
      refuse(node, fmt::format("expected {} weights of floating-point numbers", entry->count),
             fmt::format("got {}", model::to_string(weights.shape)));
    set_weights(output.node, pattern.parameter, *weights.floats());
  }
  output.axes = network_.shape(output.node);
  output.shape = {kSampleCount};
  for (std::size_t axis = 0; axis < output.axes.size(); ++axis) {
    output.shape.push_back(output.axes[axis]);
    output.order.push_back(axis);
  }
  set(node, output);
}

/// The module name of its weights, "conv1" for "conv1.weight", if a framework named them, else the
/// name of the node.
std::string Importer::layer_name(const Node& node, std::size_t weight) const {
  std::string name;
  if (weight < node.inputs.size()) {
    std::string_view weight_name = node.inputs[weight];
    for (const std::string_view ending : {"_DequantizeLinear_Output", "_DequantizeLinear"})
      if (weight_name.ends_with(ending))
        weight_name.remove_suffix(ending.size());  // added by onnxruntime
    for (const std::string_view ending : {".weight", "/kernel", "/gamma", "/embeddings", "/scale"})
      if (weight_name.ends_with(ending))
        name = weight_name.substr(0, weight_name.size() - ending.size());
  }
  if (name.find("::") != std::string::npos) name.clear();
  if (name.empty()) name = path_of(node.name);
  constexpr std::size_t kLongest = 128;
  name.resize(std::min(name.size(), kLongest));
  for (char& letter : name)
    if (letter == '/' || std::iscntrl(static_cast<unsigned char>(letter)) != 0 ||
        static_cast<unsigned char>(letter) >= 128)
      letter = '.';
  return name;
}

void Importer::set_weights(NodeId node, const char* parameter, std::vector<float> values) {
  weight_elements_ += values.size();
  if (weight_elements_ > kMaxWeights)
    throw Error(ErrorCategory::input, where_,
                fmt::format("expected at most {} weights", kMaxWeights), "got more");
  weights_[fmt::format("{}/{}", network_.nodes()[static_cast<std::size_t>(node)].name, parameter)] =
      std::move(values);
}

ImportedNetwork import_network(const Model& model, std::string_view where,
                               const ImportOptions& options) {
  return Importer(model, where, options).run();
}

}  // namespace lockstep::inline v0::onnx
