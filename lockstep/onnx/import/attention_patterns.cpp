// Recognizes attention and additive attention in a graph.
#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/model/layers/additive_attention/additive_attention.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/onnx/import/constant.h"
#include "lockstep/onnx/import/layer_patterns.h"

namespace lockstep::inline v0::onnx {
namespace {

constexpr double kHidingScore = -1e9;  ///< upper bound of a mask: its exp() is 0

bool is_axis(const Node& node, std::int64_t axis) {
  return Attributes(node).integer("axis", -1) == axis;
}

}  // namespace

/// A tensor as heads, [batch, heads, positions, width], or [batch, heads, members, positions,
/// width] if several heads of queries share one of keys.
struct LayerPatterns::Heads {
  std::string input;  ///< [batch, positions, heads * members * width]
  std::int64_t positions = 0;
  std::int64_t heads = 0;
  std::int64_t members = 1;
  std::int64_t width = 0;

  std::int64_t elements() const { return heads * members * width; }
};

/// Which keys a query attends to.
struct LayerPatterns::Mask {
  std::string causal;         ///< a constant [T, T]; empty: none
  std::string segments = {};  ///< int32 [batch, T]; empty: none
};

std::optional<LayerPatterns::Heads> LayerPatterns::heads(const std::string& tensor,
                                                         bool is_grouped) const {
  const std::string split = transposed(tensor, is_grouped ? Ints{0, 2, 3, 1, 4} : Ints{0, 2, 1, 3});
  const Node* const reshape = producer(split, "Reshape", 2);
  if (reshape == nullptr || Attributes(*reshape).integer("allowzero", 0) != 0) return std::nullopt;
  const std::optional<Ints> shape = integers(reshape->inputs[1]);
  if (!shape || shape->size() != (is_grouped ? 5u : 4u) || shape->front() != 0 ||
      std::any_of(shape->begin() + 1, shape->end(),
                  [](std::int64_t extent) { return extent <= 0 || extent > kMaxPatternExtent; }))
    return std::nullopt;
  return Heads{.input = reshape->inputs[0],
               .positions = (*shape)[1],
               .heads = (*shape)[2],
               .members = is_grouped ? (*shape)[3] : 1,
               .width = shape->back()};
}

bool LayerPatterns::is_causal(const std::string& tensor, std::int64_t positions) const {
  const Tensor* const found = constant(tensor);
  if (found == nullptr || found->type != TensorType::boolean ||
      found->shape != model::Shape{positions, positions})
    return false;
  const auto [entry, is_new] = causal_.try_emplace(tensor, true);
  if (is_new)
    for (std::int64_t i = 0; i < positions; ++i)
      for (std::int64_t k = 0; k < positions; ++k)
        if ((found->bytes[static_cast<std::size_t>(i * positions + k)] != 0) != (k <= i))
          entry->second = false;
  return entry->second;
}

std::optional<LayerPatterns::Mask> LayerPatterns::mask(const std::string& tensor,
                                                       bool is_grouped) const {
  if (constant(tensor) != nullptr) return Mask{.causal = tensor};
  Mask result;
  std::string documents = tensor;
  if (const Node* const both = producer(tensor, "And", 2)) {
    documents = both->inputs[0];
    result.causal = both->inputs[1];
  }
  const Node* const equal = producer(documents, "Equal", 2);
  if (equal == nullptr) return std::nullopt;
  result.segments =
      input_of(equal->inputs[0], "Unsqueeze", is_grouped ? Ints{1, 2, 4} : Ints{1, 3});
  const std::string key_segments =
      input_of(equal->inputs[1], "Unsqueeze", is_grouped ? Ints{1, 2, 3} : Ints{1, 2});
  if (result.segments.empty() || key_segments != result.segments) return std::nullopt;
  return result;
}

/// AttentionSpec::rotary, if the constants are the cosines and sines of its angles.
std::optional<float> LayerPatterns::rotation(const std::string& cosines, const std::string& sines,
                                             std::int64_t positions, std::int64_t width) const {
  const model::Shape shape{positions, width};
  const auto is_table = [&](const Tensor* table) {
    return table != nullptr && table->type == TensorType::float32 && table->shape == shape;
  };
  const Tensor* const first = constant(cosines);
  const Tensor* const second = constant(sines);
  if (!is_table(first) || !is_table(second) || width % 2 != 0) return std::nullopt;
  const auto [entry, is_new] = rotations_.try_emplace({cosines, sines, width}, std::nullopt);
  if (!is_new) return entry->second;
  const std::vector<float> cos = *constant_of(*first).floats();
  const std::vector<float> sin = *constant_of(*second).floats();
  const auto has_angles = [&](float rotary, double tolerance) {
    const model::AttentionSpec angles{.width = width, .rotary = rotary};
    for (std::size_t k = 0; k < cos.size(); ++k) {
      const auto position = static_cast<std::int64_t>(k) / width;
      const double angle = angles.angle(position, static_cast<std::int64_t>(k) % (width / 2));
      if (!(std::abs(double{cos[k]} - std::cos(angle)) <= tolerance) ||
          !(std::abs(double{sin[k]} - std::sin(angle)) <= tolerance))
        return false;
    }
    return true;
  };
  // At position 1, pair i is rotated by rotary^(-2i / width). The base usually is a power of 10.
  double rotary = 10000;
  if (const std::int64_t pair = width / 2 - 1; pair > 0 && positions > 1) {
    const double angle = std::asin(double{sin[static_cast<std::size_t>(width + pair)]});
    rotary = std::pow(angle, -static_cast<double>(width) / static_cast<double>(2 * pair));
  }
  if (!(rotary > 0 && rotary < 1e12)) return std::nullopt;
  constexpr double kRounding = 1e-7;
  if (const auto whole = static_cast<float>(std::round(rotary)); has_angles(whole, kRounding))
    entry->second = whole;
  else if (const auto exact = static_cast<float>(rotary); has_angles(exact, 100 * kRounding))
    entry->second = exact;
  return entry->second;
}

/// Replaces x * cos + (the halves of x swapped, the first negated) * sin by x. Keeps a tensor that
/// is no sum. Returns false for another sum.
bool LayerPatterns::unrotate(std::string& tensor, const Heads& shape, float& rotary) const {
  const Node* const sum = producer(tensor, "Add", 2);
  if (sum == nullptr) return false;
  const Node* const first = producer(sum->inputs[0], "Mul", 2);
  const Node* const second = producer(sum->inputs[1], "Mul", 2);
  const Node* const swapped =
      second == nullptr ? nullptr : producer(second->inputs[0], "Concat", 2);
  const Node* const negation =
      swapped == nullptr ? nullptr : producer(swapped->inputs[0], "Neg", 1);
  const Node* const split = swapped == nullptr ? nullptr : producer(swapped->inputs[1], "Split", 2);
  if (first == nullptr || negation == nullptr || split == nullptr || split->outputs.size() != 2 ||
      split->inputs[0] != first->inputs[0] || negation->inputs[0] != split->outputs[1] ||
      integers(split->inputs[1]) != Ints{shape.width / 2, shape.width / 2} ||
      Attributes(*split).integer("axis", 0) != -1 || Attributes(*swapped).integer("axis", 0) != -1)
    return false;
  const auto found = rotation(first->inputs[1], second->inputs[1], shape.positions, shape.width);
  if (!found) return false;
  rotary = *found;
  tensor = split->inputs[0];
  return true;
}

std::optional<LayerPattern> LayerPatterns::attention(const Node& last) const {
  std::string output = last.outputs.front();
  std::string segments;
  if (last.type == "Mul") {
    if (last.inputs.size() != 2) return std::nullopt;
    segments = text_weights_of(input_of(last.inputs[1], "Unsqueeze", {2}), TensorType::float32);
    if (segments.empty()) return std::nullopt;
    output = last.inputs[0];
  }
  const Node* const joined = producer(output, "Reshape", 2);
  if (joined == nullptr || Attributes(*joined).integer("allowzero", 0) != 0) return std::nullopt;
  const std::string grouped_means = transposed(joined->inputs[0], {0, 3, 1, 2, 4});
  const bool is_grouped = !grouped_means.empty();
  const Node* const means = producer(
      is_grouped ? grouped_means : transposed(joined->inputs[0], {0, 2, 1, 3}), "MatMul", 2);
  const Node* const weights = means == nullptr ? nullptr : producer(means->inputs[0], "Softmax", 1);
  if (weights == nullptr || !is_axis(*weights, -1)) return std::nullopt;
  std::string scores = weights->inputs[0];
  Mask hidden;
  if (const Node* const choice = producer(scores, "Where", 3)) {
    const auto otherwise = number(choice->inputs[2]);
    const auto found = mask(choice->inputs[0], is_grouped);
    if (!found || !otherwise || !(*otherwise <= kHidingScore)) return std::nullopt;
    hidden = *found;
    scores = choice->inputs[1];
  }
  const Node* const products = producer(scores, "MatMul", 2);
  const Node* const scaled =
      products == nullptr ? nullptr : producer(products->inputs[0], "Mul", 2);
  if (scaled == nullptr || hidden.segments != segments) return std::nullopt;
  std::string queries = scaled->inputs[0];
  std::string keys =
      transposed(products->inputs[1], is_grouped ? Ints{0, 1, 2, 4, 3} : Ints{0, 1, 3, 2});
  const auto factor = number(scaled->inputs[1]);

  // The heads of the values determine the width of the rotated ones.
  const auto value_heads = heads(means->inputs[1], is_grouped);
  if (!value_heads || !factor) return std::nullopt;
  float rotary = 0;
  std::optional<Heads> query_heads = heads(queries, is_grouped);
  if (!query_heads) {
    Heads expected = *value_heads;
    const std::optional<Ints> shape = integers(joined->inputs[1]);
    if (!shape || shape->size() != 3) return std::nullopt;
    expected.positions = (*shape)[1];
    float key_rotary = 0;
    if (!unrotate(queries, expected, rotary) || !unrotate(keys, *value_heads, key_rotary) ||
        key_rotary != rotary)
      return std::nullopt;
    query_heads = heads(queries, is_grouped);
  }
  const auto key_heads = heads(keys, is_grouped);
  if (!query_heads || !key_heads) return std::nullopt;
  const Heads& q = *query_heads;
  const Heads& k = *key_heads;
  const Heads& v = *value_heads;
  const double wanted = 1 / std::sqrt(static_cast<double>(q.width));
  if (q.heads != k.heads || q.heads != v.heads || k.members != 1 || v.members != 1 ||
      q.width != k.width || q.width != v.width || k.positions != v.positions ||
      integers(joined->inputs[1]) != Ints{0, q.positions, q.elements()} ||
      !(std::abs(*factor - wanted) <= 1e-6 * wanted) ||
      (!hidden.causal.empty() &&
       (k.positions != q.positions || !is_causal(hidden.causal, q.positions))))
    return std::nullopt;

  LayerPattern pattern;
  const Node* const split = producer(q.input, "Split", 2);
  const bool is_packed =
      split != nullptr && split->outputs == std::vector{q.input, k.input, v.input} &&
      Attributes(*split).integer("axis", 0) == -1 &&
      integers(split->inputs[1]) == Ints{q.elements(), k.elements(), v.elements()};
  if (is_packed) {
    pattern.node.inputs = {split->inputs[0]};
    pattern.shapes = {{q.positions, q.elements() + k.elements() + v.elements()}};
  } else {
    pattern.node.inputs = {q.input, k.input, v.input};
    for (const Heads* const part : {&q, &k, &v})
      pattern.shapes.push_back({part->positions, part->elements()});
  }
  if (!segments.empty()) {
    pattern.node.inputs.push_back(segments);
    pattern.shapes.push_back({q.positions});
  }
  pattern.layer = std::make_shared<const model::Attention>(
      model::Attention::Options{.heads = q.heads * q.members,
                                .key_value_heads = is_grouped ? q.heads : 0,
                                .causal = !hidden.causal.empty(),
                                .rotary = rotary});
  return pattern;
}

/// The softmax over the keys of the sum of scale * tanh(query + key), times the values.
std::optional<LayerPattern> LayerPatterns::additive_attention(const Node& last) const {
  if (last.inputs.size() != 2) return std::nullopt;
  std::string weights = last.inputs[0];
  std::string segments;
  if (const Node* const masked = producer(weights, "Mul", 2)) {
    segments = text_weights_of(input_of(masked->inputs[1], "Unsqueeze", {1}), TensorType::float32);
    if (segments.empty()) return std::nullopt;
    weights = masked->inputs[0];
  }
  const Node* const softmax = producer(weights, "Softmax", 1);
  if (softmax == nullptr || !is_axis(*softmax, -1)) return std::nullopt;
  std::string scores = softmax->inputs[0];
  if (const Node* const choice = producer(scores, "Where", 3)) {
    const auto otherwise = number(choice->inputs[2]);
    const std::string masked = text_of(input_of(choice->inputs[0], "Unsqueeze", {1}));
    if (masked.empty() || masked != segments || !otherwise || !(*otherwise <= kHidingScore))
      return std::nullopt;
    scores = choice->inputs[1];
  } else if (!segments.empty()) {
    return std::nullopt;
  }
  const Node* const product = producer(input_of(scores, "Squeeze", {3}), "MatMul", 2);
  const Node* const tanh = product == nullptr ? nullptr : producer(product->inputs[0], "Tanh", 1);
  const Node* const sum = tanh == nullptr ? nullptr : producer(tanh->inputs[0], "Add", 2);
  if (sum == nullptr) return std::nullopt;
  LayerPattern pattern;
  pattern.node.inputs = {input_of(sum->inputs[0], "Unsqueeze", {2}),
                         input_of(sum->inputs[1], "Unsqueeze", {1}), last.inputs[1]};
  pattern.parameter = "scale";
  pattern.weights = constant(product->inputs[1]);
  if (pattern.weights == nullptr || pattern.weights->shape.size() != 2 ||
      pattern.weights->shape[1] != 1 || pattern.node.inputs[0].empty() ||
      pattern.node.inputs[1].empty())
    return std::nullopt;
  if (!segments.empty()) pattern.node.inputs.push_back(segments);
  pattern.layer = std::make_shared<const model::AdditiveAttention>();
  return pattern;
}

}  // namespace lockstep::inline v0::onnx
