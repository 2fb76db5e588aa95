// Imports products with weights, embeddings and normalizations of rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/embedding/embedding.h"
#include "lockstep/model/layers/group_normalization/group_normalization.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"
#include "lockstep/model/layers/matmul/matmul.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

/// For each element of a row in the network, its index in the row of the graph.
std::vector<std::size_t> graph_indices(const Array& array) {
  std::vector<std::size_t> strides(array.axes.size(), 1);
  for (std::size_t axis = strides.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::size_t>(array.axes[axis]);
  std::vector<std::size_t> indices = {0};
  for (const std::size_t axis : array.order) {
    std::vector<std::size_t> next;
    next.reserve(indices.size() * static_cast<std::size_t>(array.axes[axis]));
    for (const std::size_t index : indices)
      for (std::int64_t k = 0; k < array.axes[axis]; ++k)
        next.push_back(index + static_cast<std::size_t>(k) * strides[axis]);
    indices = std::move(next);
  }
  return indices;
}

Axes identity_order(std::size_t rank) {
  Axes order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

/// [rows, columns] to [columns, rows].
std::vector<float> transposed(const std::vector<float>& from, std::size_t rows,
                              std::size_t columns) {
  std::vector<float> to(from.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      to[column * rows + row] = from[row * columns + column];
  return to;
}

/// Whether a constant is `count` elements along the last axis.
bool is_row(const Constant& constant, std::int64_t count) {
  return constant.floats() != nullptr && !constant.has_batch() && !constant.shape.empty() &&
         constant.shape.back() == count &&
         static_cast<std::int64_t>(constant.floats()->size()) == count;
}

}  // namespace

const Node* Importer::following_bias(const Node& node, std::int64_t units,
                                     std::vector<float>& bias) {
  const Node* const reader = only_reader(node);
  if (reader == nullptr || reader->type != "Add" || !reader->domain.empty() ||
      reader->inputs.size() != 2 || reader->outputs.empty())
    return nullptr;
  const std::string& other = reader->inputs[reader->inputs[0] == node.outputs.front() ? 1 : 0];
  if (!is_computable(other)) return nullptr;
  const auto* const constant = std::get_if<Constant>(&imported(*reader, other));
  if (constant == nullptr || !is_row(*constant, units)) return nullptr;
  bias = *constant->floats();
  return reader;
}

/// Adds a dense layer with `kernel` [units, F], for rows of F elements in the graph's order, or
/// with the rows of `embedding` unless that is empty.
void Importer::add_dense(const Node& node, const Array& input, std::vector<float> kernel,
                         std::int64_t units, std::optional<std::vector<float>> bias,
                         const Node& output_node, std::size_t weight,
                         const std::string& embedding) {
  NodeId from = input.node;
  bool is_sorted = true;
  if (input.sample().size() == 1) {
    // Keeps the row as in the network, and reorders the kernel.
    const std::vector<std::size_t> indices = graph_indices(input);
    is_sorted = std::ranges::is_sorted(indices);
    if (!is_sorted) {
      const std::vector<float> original = std::move(kernel);
      kernel.resize(original.size());
      for (std::size_t unit = 0; unit < static_cast<std::size_t>(units); ++unit)
        for (std::size_t k = 0; k < indices.size(); ++k)
          kernel[unit * indices.size() + k] = original[unit * indices.size() + indices[k]];
    }
    if (network_.shape(from).size() != 1) from = moved(node, from, input.sample(), std::nullopt);
  } else {
    from = plain(node, input);
  }
  const bool is_tied = is_sorted && !embedding.empty();
  // The weights of a tied layer are named after the embedding.
  const std::string name = layer_name(node, is_tied ? node.inputs.size() : weight);
  const bool use_bias = bias.has_value();
  const NodeId layer =
      is_tied ? add(node, model::TiedDense({.to = embedding, .use_bias = use_bias}), {from}, name)
              : add(node, model::Dense({.units = units, .use_bias = use_bias}), {from}, name);
  if (!is_tied) set_weights(layer, "kernel", std::move(kernel));
  if (bias) set_weights(layer, "bias", std::move(*bias));
  Array output;
  output.node = layer;
  output.shape = input.shape;
  output.shape.back() = units;
  output.before = input.before;
  output.after = input.after;
  output.axes = output.sample();
  output.order = identity_order(output.axes.size());
  set(output_node, output);
  if (&output_node != &node) done_.insert(&output_node);
}

std::string Importer::embedding_of(const Node& node) const {
  const Attributes attributes(node);
  std::string rows = node.inputs[1];
  if (node.type == "Gemm") {
    if (attributes.integer("transB", 0) == 0 || attributes.number("alpha", 1) != 1) return {};
  } else {
    const auto producer = producers_.find(rows);
    if (producer == producers_.end()) return {};
    const Node& transpose = *nodes_[producer->second];
    // The order of the two axes of a matrix of weights.
    const std::vector<std::int64_t> swapped{1, 0};
    if (transpose.type != "Transpose" || !transpose.domain.empty() || transpose.inputs.empty() ||
        Attributes(transpose).integers("perm").value_or(swapped) != swapped)
      return {};
    rows = transpose.inputs[0];
  }
  const auto found = embeddings_.find(rows);
  return found == embeddings_.end() ? std::string() : found->second;
}

void Importer::import_gemm(const Node& node) {
  const Array input = any_array_at(node, 0);
  const Constant& weights = weights_at(node, 1);
  const Attributes attributes(node);
  const bool is_transposed = attributes.integer("transB", 0) != 0;
  if (input.shape.size() != 2 || input.batch() != 0 || attributes.integer("transA", 0) != 0)
    refuse(node, "expected rows [N, F]",
           fmt::format("the input has {} axes{}", input.shape.size(),
                       attributes.integer("transA", 0) != 0 ? " and is transposed" : ""));
  const std::size_t from = is_transposed ? 1 : 0;
  if (weights.shape.size() != 2 || weights.shape[from] != input.shape[1] ||
      weights.floats()->empty())
    refuse(node, fmt::format("expected weights for rows of {} elements", input.shape[1]),
           fmt::format("got {}", model::to_string(weights.shape)));
  const std::int64_t units = weights.shape[1 - from];
  std::vector<float> kernel =
      is_transposed ? *weights.floats()
                    : transposed(*weights.floats(), static_cast<std::size_t>(input.shape[1]),
                                 static_cast<std::size_t>(units));
  if (const float alpha = attributes.number("alpha", 1); alpha != 1)
    for (float& value : kernel) value *= alpha;
  std::optional<std::vector<float>> bias;
  if (has_input(node, 2)) {
    const Constant& added = weights_at(node, 2);
    bias = *added.floats();
    if (bias->size() == 1) bias->resize(static_cast<std::size_t>(units), bias->front());
    if (static_cast<std::int64_t>(bias->size()) != units ||
        (!added.shape.empty() && added.shape.back() != units && added.floats()->size() != 1))
      refuse(node, fmt::format("expected a bias of {} elements", units),
             fmt::format("got {}", model::to_string(added.shape)));
    if (const float beta = attributes.number("beta", 1); beta != 1)
      for (float& value : *bias) value *= beta;
  }
  add_dense(node, input, std::move(kernel), units, std::move(bias), node, 1, embedding_of(node));
}

/// The products of the matrices of two arrays.
void Importer::import_array_product(const Node& node) {
  const Array a = with_sample_axes(node, any_array_at(node, 0));
  const Array b = with_sample_axes(node, any_array_at(node, 1));
  const std::size_t rank = a.shape.size();
  const std::size_t batch = a.batch();
  if (rank < 3 || b.shape.size() != rank || batch + 2 >= rank || b.batch() != batch ||
      !std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin()) || a.before != b.before ||
      a.after != b.after || a.shape.back() != b.shape[rank - 2])
    refuse(node, "expected matrices [..., M, K] and [..., K, N] for each sample",
           fmt::format("those of a sample are {} and {}", model::to_string(a.sample()),
                       model::to_string(b.sample())));
  const Axes matrices = identity_order(a.sample().size());
  Axes order = matrices;
  // The second matrices are read as they are stored.
  const std::size_t last = order.size() - 1;
  const auto place_of = [&](std::size_t axis) { return std::ranges::find(b.order, axis); };
  const bool is_transposed = place_of(last - 1) > place_of(last);
  if (is_transposed) std::swap(order[last - 1], order[last]);
  Array output = a;
  output.node = add(node, model::MatMul({.transpose_b = is_transposed}),
                    {arranged(node, a, matrices), arranged(node, b, order)});
  output.shape.back() = b.shape.back();
  output.axes = output.sample();
  output.order = matrices;
  set(node, output);
}

void Importer::import_product(const Node& node) {
  if (constant_at(node, 0) == nullptr && constant_at(node, 1) == nullptr)
    return import_array_product(node);
  const Array input = any_array_at(node, 0);
  const Constant& weights = weights_at(node, 1);
  if (input.shape.size() < 2 || input.shape.back() == kSampleCount || weights.shape.size() != 2 ||
      weights.shape[0] != input.shape.back() || weights.floats()->empty())
    refuse(node,
           fmt::format("expected a matrix of weights for rows of {} elements",
                       input.shape.size() < 2 ? 0 : input.shape.back()),
           fmt::format("got {}", model::to_string(weights.shape)));
  const std::int64_t units = weights.shape[1];
  std::vector<float> kernel =
      transposed(*weights.floats(), static_cast<std::size_t>(weights.shape[0]),
                 static_cast<std::size_t>(units));
  const std::string embedding = embedding_of(node);
  std::vector<float> bias;
  const Node* const addition = following_bias(node, units, bias);
  // In PyTorch's products only the bias is named after the module.
  const std::size_t named =
      addition != nullptr && addition->inputs[0] == node.outputs.front() ? 1 : 0;
  const bool has_name = node.inputs[1].ends_with(".weight") || node.inputs[1].ends_with("/kernel");
  if (addition != nullptr && !has_name && addition->inputs[named].ends_with(".bias")) {
    Node renamed = node;
    renamed.inputs[1] =
        addition->inputs[named].substr(0, addition->inputs[named].size() - 5) + ".weight";
    renamed.outputs.clear();
    add_dense(renamed, input, std::move(kernel), units, std::move(bias), *addition, 1, embedding);
  } else if (addition != nullptr) {
    add_dense(node, input, std::move(kernel), units, std::move(bias), *addition, 1, embedding);
  } else {
    add_dense(node, input, std::move(kernel), units, std::nullopt, node, 1, embedding);
  }
}

void Importer::import_embedding(const Node& node, const Constant& rows) {
  const Array indices = samples_at(node, 1);
  const bool are_rows = rows.floats() != nullptr && rows.shape.size() == 2 && !rows.has_batch() &&
                        !rows.floats()->empty() && Attributes(node).integer("axis", 0) == 0;
  if (!are_rows || !model::is_input(indices.node))
    refuse(node, "expected rows of weights by the indices of an input (an embedding)",
           are_rows ? "the indices are computed"
                    : fmt::format("the rows are {}", model::to_string(rows.shape)));
  const NodeId layer =
      add(node, model::Embedding({.vocabulary = rows.shape[0], .dimension = rows.shape[1]}),
          {plain(node, indices)}, layer_name(node, 0));
  set_weights(layer, "embeddings", *rows.floats());
  embeddings_.emplace(node.inputs[0], network_.nodes()[static_cast<std::size_t>(layer)].name);
  Array output;
  output.node = layer;
  output.shape = indices.shape;
  output.shape.push_back(rows.shape[1]);
  output.axes = output.sample();
  for (std::size_t axis = 0; axis < output.axes.size(); ++axis) output.order.push_back(axis);
  set(node, output);
}

void Importer::import_layer_normalization(const Node& node) {
  Array array = any_array_at(node, 0);
  const std::size_t rank = array.shape.size();
  const std::int64_t units = array.shape.empty() ? 0 : array.shape.back();
  const Constant& gamma = weights_at(node, 1);
  const auto axis = axis_of(Attributes(node).integer("axis", -1), rank);
  if (rank < 2 || !axis || *axis + 1 != rank || array.batch() + 1 == rank || !is_row(gamma, units))
    refuse(node, "expected a normalization of the last axis", "it is of another one or of several");
  std::vector<float> beta(static_cast<std::size_t>(units));
  if (has_input(node, 2)) {
    if (!is_row(weights_at(node, 2), units))
      refuse(node, fmt::format("expected a bias of {} elements", units), "got another number");
    beta = *weights_at(node, 2).floats();
  }
  if (is_used(node, 1) || is_used(node, 2))
    refuse(node, "expected its first output only", "its statistics are read");
  array.node = plain(node, array);
  array.axes = array.sample();
  array.order.clear();
  for (std::size_t k = 0; k < array.axes.size(); ++k) array.order.push_back(k);
  array.node =
      add(node, model::LayerNormalization({.epsilon = Attributes(node).number("epsilon", 1e-5f)}),
          {array.node}, layer_name(node, 1));
  set_weights(array.node, "gamma", *gamma.floats());
  set_weights(array.node, "beta", std::move(beta));
  set(node, array);
}

/// A normalization of groups of channels, or of single channels, which an image may be reshaped to
/// before: [N, G, C / G * H * W].
void Importer::import_group_normalization(const Node& node) {
  const Array input = samples_at(node, 0);
  const Attributes attributes(node);
  const bool are_instances = node.type == "InstanceNormalization";
  const std::int64_t rows = input.shape.size() < 3 ? 0 : input.shape[1];
  const std::int64_t groups = are_instances ? rows : attributes.integer("num_groups", 0);
  // The channels are the first axis of the array before a reshape.
  Array array = input;
  if (array.axes.empty() || array.axes.front() % std::max<std::int64_t>(rows, 1) != 0)
    array = with_sample_axes(node, array);
  const std::int64_t channels = array.axes.empty() ? 0 : array.axes.front();
  if (rows < 1 || groups < 1 || channels % groups != 0)
    refuse(node, "expected an array [N, C, ...] with groups that divide its channels",
           fmt::format("got {} and {} groups", model::to_string(input.sample()), groups));
  // The elements of the weights are those of groups, or of channels.
  const auto of_channels = [&](std::size_t index) {
    const std::vector<float>& values = *weights_at(node, index).floats();
    const auto count = static_cast<std::int64_t>(values.size());
    if (count < 1 || (count != channels && count != groups))
      refuse(node, fmt::format("expected {} or {} weights", groups, channels),
             fmt::format("got {}", count));
    std::vector<float> result;
    for (std::int64_t channel = 0; channel < channels; ++channel)
      result.push_back(values[static_cast<std::size_t>(channel / (channels / count))]);
    return result;
  };
  std::vector<float> gamma = of_channels(1);
  std::vector<float> beta = of_channels(2);
  // Ones and zeros that are no weights of the file, or that weights of channels follow, stand for a
  // normalization without weights.
  const Node* next = only_reader(node);
  if (next != nullptr && next->type == "Reshape") next = only_reader(*next);
  const auto are_weights = [&](const std::string& tensor) {
    if (!is_computable(tensor)) return false;
    const auto* const constant = std::get_if<Constant>(&imported(*next, tensor));
    return constant != nullptr && !constant->scalar();
  };
  const bool is_scaled =
      next != nullptr && next->type == "Mul" && std::ranges::any_of(next->inputs, are_weights);
  const auto are_constant = [&](std::size_t index, const std::vector<float>& values, float value) {
    return (is_scaled || !initializers_.contains(node.inputs[index])) &&
           std::ranges::count(values, value) == std::ssize(values);
  };
  const bool scales = !are_constant(1, gamma, 1);
  const bool centers = !are_constant(2, beta, 0);
  Axes order = identity_order(array.axes.size());
  std::rotate(order.begin(), order.begin() + 1, order.end());
  Array whole = array;
  whole.shape = array.axes;
  whole.shape.insert(whole.shape.begin(), kSampleCount);
  array.node = add(node,
                   model::GroupNormalization({.groups = groups,
                                              .epsilon = attributes.number("epsilon", 1e-5f),
                                              .scale = scales,
                                              .center = centers}),
                   {arranged(node, whole, order)}, layer_name(node, 1));
  if (scales) set_weights(array.node, "gamma", std::move(gamma));
  if (centers) set_weights(array.node, "beta", std::move(beta));
  array.order = order;
  set(node, array);
}

/// The operators of a layer normalization until version 17:
///
///     d = x - ReduceMean(x), y = d / Sqrt(ReduceMean(d^2) + epsilon) [* gamma [+ beta]]
///
/// `node` is the first one. Returns false if others follow it.
bool Importer::import_decomposed_normalization(const Node& node) {
  std::vector<const Node*> parts;
  // The only reader of `from`, if its type is `type`.
  const auto next = [&](const Node* from, std::string_view type) -> const Node* {
    const Node* const reader = from == nullptr ? nullptr : only_reader(*from);
    if (reader == nullptr || reader->type != type || reader->outputs.empty()) return nullptr;
    parts.push_back(reader);
    return reader;
  };
  // The constant input of a node whose other input is the output of `before`.
  const auto constant_beside = [&](const Node* part, const Node* before) -> const Constant* {
    if (part == nullptr || part->inputs.size() != 2) return nullptr;
    const std::string& other = part->inputs[part->inputs[0] == before->outputs.front() ? 1 : 0];
    return is_computable(other) ? std::get_if<Constant>(&imported(*part, other)) : nullptr;
  };
  if (node.inputs.empty() || Attributes(node).integer("keepdims", 1) == 0) return false;
  const Imported& read = imported(node, node.inputs.front());
  if (std::holds_alternative<Constant>(read)) return false;
  const Shape shape = std::holds_alternative<Array>(read) ? std::get<Array>(read).shape
                                                          : std::get<Function>(read).input.shape;
  const auto is_of_last_axis = [&](const Node& mean) {
    if (has_input(mean, 1) && !is_computable(mean.inputs[1])) return false;
    const auto axes = integers_at(mean, 1, "axes");
    return axes && axes->size() == 1 && axis_of(axes->front(), shape.size()) == shape.size() - 1;
  };
  if (shape.size() < 2 || shape.back() == kSampleCount || !is_of_last_axis(node)) return false;

  const Node* const difference = next(&node, "Sub");
  if (difference == nullptr || difference->inputs.size() != 2 ||
      difference->inputs[0] != node.inputs[0])
    return false;
  const auto readers = readers_.find(difference->outputs.front());
  if (readers == readers_.end()) return false;
  const Node* square = nullptr;
  const Node* quotient = nullptr;
  for (const Node* const reader : readers->second)
    (reader->type == "Div" ? quotient : square) = reader;
  if (square == nullptr || quotient == nullptr || quotient->inputs.size() != 2 ||
      quotient->inputs[0] != difference->outputs.front() || square->outputs.empty() ||
      quotient->outputs.empty())
    return false;
  if (square->type == "Pow") {
    const Constant* const exponent = constant_beside(square, difference);
    if (exponent == nullptr || exponent->scalar() != 2) return false;
  } else if (square->type != "Mul" || square->inputs.size() != 2 ||
             square->inputs[0] != square->inputs[1]) {
    return false;
  }
  const Node* const variance = next(square, "ReduceMean");
  const Node* const sum = next(variance, "Add");
  const Constant* const added = sum == nullptr ? nullptr : constant_beside(sum, variance);
  const Node* const root = next(sum, "Sqrt");
  if (variance == nullptr || added == nullptr || !added->scalar() || root == nullptr ||
      only_reader(*root) != quotient || quotient->inputs[1] != root->outputs.front() ||
      !is_of_last_axis(*variance))
    return false;
  const auto epsilon = static_cast<float>(*added->scalar());
  parts.insert(parts.end(), {square, quotient});

  const std::int64_t units = shape.back();
  std::vector<float> gamma(static_cast<std::size_t>(units), 1.0f);
  std::vector<float> beta(static_cast<std::size_t>(units), 0.0f);
  const Node* last = quotient;
  const Node* named = quotient;
  std::size_t weight = 2;  // none
  const auto factor = [&](std::string_view type, std::vector<float>& values) {
    const Node* const reader = only_reader(*last);
    if (reader == nullptr || reader->type != type || reader->outputs.empty()) return false;
    const Constant* const constant = constant_beside(reader, last);
    if (constant == nullptr || !is_row(*constant, units)) return false;
    values = *constant->floats();
    if (type == "Mul") {
      named = reader;
      weight = reader->inputs[0] == last->outputs.front() ? 1 : 0;
    }
    parts.push_back(reader);
    last = reader;
    return true;
  };
  if (factor("Mul", gamma)) factor("Add", beta);

  Array array = array_at(node, 0);
  const std::string name = layer_name(*named, weight);
  array.node = plain(node, array);
  array.axes = array.sample();
  array.order.clear();
  for (std::size_t k = 0; k < array.axes.size(); ++k) array.order.push_back(k);
  array.node = add(node, model::LayerNormalization({.epsilon = epsilon}), {array.node}, name);
  set_weights(array.node, "gamma", std::move(gamma));
  set_weights(array.node, "beta", std::move(beta));
  set(*last, array);
  done_.insert(parts.begin(), parts.end());
  return true;
}

}  // namespace lockstep::inline v0::onnx
