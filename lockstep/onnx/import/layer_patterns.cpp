#include "lockstep/onnx/import/layer_patterns.h"

#include "lockstep/model/layers/layer_normalization/layer_normalization.h"
#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"
#include "lockstep/onnx/import/constant.h"

namespace lockstep::inline v0::onnx {
namespace {

bool keeps_axes(const Node& node) { return Attributes(node).integer("keepdims", 1) != 0; }

}  // namespace

LayerPatterns::LayerPatterns(const Graph& graph) {
  for (const Tensor& tensor : graph.initializers) constants_.emplace(tensor.name, &tensor);
  for (const Node& node : graph.nodes)
    for (const std::string& output : node.outputs)
      if (!output.empty()) producers_.emplace(output, &node);
}

std::optional<LayerPattern> LayerPatterns::find(const Node& last) const {
  if (!last.domain.empty() || last.outputs.empty()) return std::nullopt;
  const std::string_view type = last.type;
  std::optional<LayerPattern> found;
  if (type == "Reshape" || type == "Mul") found = attention(last);
  if (type == "Mul" && !found) found = rms_normalization(last);
  if (type == "MatMul") found = additive_attention(last);
  if (type == "Div") found = mean_of_positions(last);
  if (type == "LSTM" || type == "GRU" || type == "RNN") found = recurrent(last);
  if (type == "Slice") found = reversed_recurrent(last);
  if (!found) return std::nullopt;
  if (found->layer != nullptr) found->node.type = found->layer->kind();
  found->node.name = last.name;
  found->node.outputs = last.outputs;
  return found;
}

// ---- Tensors

/// The node whose first output is `tensor`, if it is a `type` with `inputs` inputs.
const Node* LayerPatterns::producer(const std::string& tensor, std::string_view type,
                                    std::size_t inputs) const {
  const auto found = producers_.find(tensor);
  if (found == producers_.end()) return nullptr;
  const Node* const node = found->second;
  const bool fits = node->type == type && node->domain.empty() && node->inputs.size() == inputs &&
                    node->outputs.front() == tensor;
  return fits ? node : nullptr;
}

const Tensor* LayerPatterns::constant(const std::string& tensor) const {
  const auto found = constants_.find(tensor);
  return found == constants_.end() ? nullptr : found->second;
}

/// The integers of a constant, such as a shape or axes.
std::optional<LayerPatterns::Ints> LayerPatterns::integers(const std::string& tensor) const {
  const Tensor* const found = constant(tensor);
  if (found == nullptr || found->type != TensorType::int64 || found->shape.size() != 1 ||
      found->shape.front() > 8)
    return std::nullopt;
  return *constant_of(*found).integers();
}

std::optional<double> LayerPatterns::number(const std::string& tensor) const {
  const Tensor* const found = constant(tensor);
  if (found == nullptr || found->shape.size() > 1 || model::element_count(found->shape) != 1)
    return std::nullopt;
  return constant_of(*found).scalar();
}

/// The first input of a node whose second input are the integers `values`.
std::string LayerPatterns::input_of(const std::string& tensor, std::string_view type,
                                    const Ints& values) const {
  const Node* const node = producer(tensor, type, 2);
  return node != nullptr && integers(node->inputs[1]) == values ? node->inputs[0] : std::string();
}

std::string LayerPatterns::sum_of_positions(const std::string& tensor) const {
  const Node* const sum = producer(tensor, "ReduceSum", 2);
  return sum != nullptr && !keeps_axes(*sum) ? input_of(tensor, "ReduceSum", {1}) : std::string();
}

std::string LayerPatterns::transposed(const std::string& tensor, const Ints& order) const {
  const Node* const node = producer(tensor, "Transpose", 1);
  return node != nullptr && Attributes(*node).integers("perm") == order ? node->inputs[0]
                                                                        : std::string();
}

/// The segments from which `tensor` is computed as "not padding".
std::string LayerPatterns::text_of(const std::string& tensor) const {
  const Node* const negation = producer(tensor, "Not", 1);
  const Node* const equal =
      negation == nullptr ? nullptr : producer(negation->inputs[0], "Equal", 2);
  return equal != nullptr && number(equal->inputs[1]) == 0.0 ? equal->inputs[0] : std::string();
}

/// The segments of text_of(), where `tensor` is cast to `type`.
std::string LayerPatterns::text_weights_of(const std::string& tensor, TensorType type) const {
  const Node* const cast = producer(tensor, "Cast", 1);
  return cast != nullptr && Attributes(*cast).integer("to", 0) == static_cast<std::int64_t>(type)
             ? text_of(cast->inputs[0])
             : std::string();
}

// ---- Positions and recurrent layers

/// The sum of the positions that are not padding, divided by their number, at least 1.
std::optional<LayerPattern> LayerPatterns::mean_of_positions(const Node& last) const {
  if (last.inputs.size() != 2) return std::nullopt;
  const Node* const weighted = producer(sum_of_positions(last.inputs[0]), "Mul", 2);
  const Node* const divisor = producer(last.inputs[1], "Max", 2);
  if (weighted == nullptr || divisor == nullptr || number(divisor->inputs[1]) != 1.0 ||
      sum_of_positions(divisor->inputs[0]) != weighted->inputs[1])
    return std::nullopt;
  const std::string segments =
      text_weights_of(input_of(weighted->inputs[1], "Unsqueeze", {2}), TensorType::float32);
  if (segments.empty()) return std::nullopt;
  LayerPattern pattern;
  pattern.node.inputs = {weighted->inputs[0], segments};
  pattern.layer = std::make_shared<const model::GlobalAveragePooling1D>();
  return pattern;
}

/// x / sqrt(mean(x * x) + epsilon) * gamma.
std::optional<LayerPattern> LayerPatterns::rms_normalization(const Node& last) const {
  const Node* const quotient =
      last.inputs.size() == 2 ? producer(last.inputs[0], "Div", 2) : nullptr;
  const Node* const root = quotient == nullptr ? nullptr : producer(quotient->inputs[1], "Sqrt", 1);
  const Node* const sum = root == nullptr ? nullptr : producer(root->inputs[0], "Add", 2);
  const Node* const mean = sum == nullptr ? nullptr : producer(sum->inputs[0], "ReduceMean", 1);
  const Node* const squares = mean == nullptr ? nullptr : producer(mean->inputs[0], "Mul", 2);
  if (squares == nullptr || !keeps_axes(*mean) || Attributes(*mean).integers("axes") != Ints{-1} ||
      squares->inputs[0] != quotient->inputs[0] || squares->inputs[1] != quotient->inputs[0])
    return std::nullopt;
  const auto epsilon = number(sum->inputs[1]);
  LayerPattern pattern;
  pattern.parameter = "gamma";
  pattern.weights = constant(last.inputs[1]);
  if (!epsilon || pattern.weights == nullptr || pattern.weights->shape.size() != 1)
    return std::nullopt;
  pattern.node.inputs = {quotient->inputs[0]};
  pattern.layer = std::make_shared<const model::RMSNormalization>(
      model::RMSNormalization::Options{.epsilon = static_cast<float>(*epsilon)});
  return pattern;
}

/// The initial state of the layer, whose parts an LSTM, GRU or RNN reads.
std::string LayerPatterns::state_of(const Node& node) const {
  const std::int64_t states = node.type == "LSTM" ? 2 : 1;
  if (node.inputs.size() != static_cast<std::size_t>(5 + states)) return {};
  const Node* const cast = producer(node.inputs[2], "Cast", 1);  // for weights in float16
  const Tensor* const recurrent = constant(cast == nullptr ? node.inputs[2] : cast->inputs[0]);
  const Node* const squeeze = producer(node.inputs[5], "Squeeze", 2);
  const Node* const split = squeeze == nullptr ? nullptr : producer(squeeze->inputs[0], "Split", 2);
  if (recurrent == nullptr || recurrent->shape.empty() || split == nullptr ||
      split->outputs.size() != static_cast<std::size_t>(states) ||
      integers(split->inputs[1]) != Ints(static_cast<std::size_t>(states), 1) ||
      Attributes(*split).integer("axis", 0) != 0)
    return {};
  for (std::size_t k = 0; k < split->outputs.size(); ++k)
    if (input_of(node.inputs[5 + k], "Squeeze", {0}) != split->outputs[k]) return {};
  const std::int64_t directions =
      Attributes(node).text("direction", "forward") == "bidirectional" ? 2 : 1;
  const Node* const reshape = producer(transposed(split->inputs[0], {2, 1, 0, 3}), "Reshape", 2);
  const bool fits =
      reshape != nullptr && Attributes(*reshape).integer("allowzero", 0) == 0 &&
      integers(reshape->inputs[1]) == Ints{0, directions, states, recurrent->shape.back()};
  return fits ? reshape->inputs[0] : std::string();
}

std::optional<LayerPattern> LayerPatterns::recurrent(const Node& node) const {
  if (node.inputs.size() < 5 || Attributes(node).integer("layout", 0) != 0) return std::nullopt;
  LayerPattern pattern;
  pattern.node = node;
  if (const std::string& lengths = node.inputs[4]; !lengths.empty()) {
    pattern.node.inputs[4] = text_weights_of(sum_of_positions(lengths), TensorType::int32);
    if (pattern.node.inputs[4].empty()) return std::nullopt;
  }
  pattern.node.inputs.resize(5);
  if (node.inputs.size() > 5) {
    pattern.node.inputs.push_back(state_of(node));
    if (pattern.node.inputs[5].empty()) return std::nullopt;
  }
  return pattern;
}

/// The outputs of a reversed layer in order of computation.
std::optional<LayerPattern> LayerPatterns::reversed_recurrent(const Node& last) const {
  if (last.inputs.size() != 5 || integers(last.inputs[1]) != Ints{-1} ||
      integers(last.inputs[3]) != Ints{0} || integers(last.inputs[4]) != Ints{-1})
    return std::nullopt;
  const auto end = integers(last.inputs[2]);
  const auto found = producers_.find(last.inputs[0]);
  if (!end || end->size() != 1 || end->front() > -kMaxPatternExtent * kMaxPatternExtent ||
      found == producers_.end())
    return std::nullopt;
  const Node& node = *found->second;
  const bool is_recurrent = node.type == "LSTM" || node.type == "GRU" || node.type == "RNN";
  if (!is_recurrent || !node.domain.empty() || node.outputs.front() != last.inputs[0] ||
      Attributes(node).text("direction", "forward") != "reverse" ||
      Attributes(node).integer("layout", 0) != 0)
    return std::nullopt;
  std::optional<LayerPattern> pattern = recurrent(node);
  if (!pattern) {
    for (std::size_t k = 4; k < node.inputs.size(); ++k)
      if (!node.inputs[k].empty()) return std::nullopt;
    pattern.emplace();
    pattern->node = node;
  }
  pattern->reverses_sequence = true;
  return pattern;
}

}  // namespace lockstep::inline v0::onnx
