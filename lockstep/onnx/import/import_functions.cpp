// Imports elementwise functions, sums and products.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/elementwise/gelu.h"
#include "lockstep/model/layers/elementwise/hard_activations.h"
#include "lockstep/model/layers/elementwise/leaky_relu.h"
#include "lockstep/model/layers/elementwise/relu6.h"
#include "lockstep/model/layers/elementwise/rescaling.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"
#include "lockstep/model/layers/elementwise/silu.h"
#include "lockstep/model/layers/elementwise/smooth_activations.h"
#include "lockstep/model/layers/elementwise/tanh.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

constexpr int kDeepestFunction = 64;
constexpr float kHiding = -1e30f;
constexpr float kLeastWeight = -1e9f;  // what masks add to the scores of hidden positions

Samples sampled(const auto& function) {
  Samples samples{};
  std::ranges::transform(kPoints, samples.begin(), function);
  return samples;
}

/// Constants of the graph are rounded to float32; the two forms of GELU differ by 5e-4.
bool are_near(const Samples& a, const Samples& b) {
  for (std::size_t k = 0; k < a.size(); ++k)
    if (!(std::abs(a[k] - b[k]) <= 1e-5 * (1 + std::abs(b[k])))) return false;
  return true;
}

/// The value of a function at a point of kPoints.
double value_at(const Samples& samples, double point) {
  return samples[static_cast<std::size_t>(std::ranges::find(kPoints, point) - kPoints.begin())];
}

/// A layer of the function that fits `samples`; null if it is another one.
template <typename Function>
std::shared_ptr<const model::Layer> fitting(const Samples& samples, const Function& function) {
  const auto evaluate = [&](double x) {
    return static_cast<double>(function.forward(static_cast<float>(x)));
  };
  return are_near(samples, sampled(evaluate))
             ? std::make_shared<const model::FunctionLayer<Function>>(function)
             : nullptr;
}

/// The layer that computes a function; null if there is none.
std::shared_ptr<const model::Layer> known_function(const Samples& samples) {
  if (are_near(samples, sampled([](double x) { return std::max(x, 0.0); })))
    return std::make_shared<const model::ReLU>();
  const auto at = [&](double point) { return static_cast<float>(value_at(samples, point)); };
  std::shared_ptr<const model::Layer> layer;
  const auto fits = [&](const auto& function) {
    layer = fitting(samples, function);
    return layer != nullptr;
  };
  // Those with options first determine them from the values at a few points.
  constexpr double kFar = 1e30;
  const float offset = at(0);
  const float slope = (at(0.3) - offset) / 0.3f;
  const float highest = at(kFar) > 1e20f ? std::numeric_limits<float>::max() : at(kFar);
  const float lowest = at(-kFar) < -1e20f ? std::numeric_limits<float>::lowest() : at(-kFar);
  const double odds = at(1) / (1 - at(1));  // if it is a sigmoid
  if (fits(model::Relu6Function{}) || fits(model::SigmoidFunction{}) ||
      fits(model::TanhFunction{}) || fits(model::SiluFunction{}) || fits(model::GeluFunction{}) ||
      fits(model::GeluFunction{.approximate = true}) || fits(model::HardSwishFunction{}) ||
      fits(model::SeluFunction{}) || fits(model::SoftplusFunction{}) ||
      fits(model::SoftsignFunction{}) || fits(model::MishFunction{}))
    return layer;
  if (fits(model::RescalingFunction{.scale = at(1) - offset, .offset = offset})) return layer;
  if (-at(-1) >= 0 && fits(model::LeakyReluFunction{.negative_slope = -at(-1)})) return layer;
  if (at(-kFar) <= 0 && fits(model::EluFunction{.alpha = -at(-kFar)})) return layer;
  if (slope > 0 && fits(model::HardSigmoidFunction{.slope = slope, .offset = offset})) return layer;
  if (odds > 1 && fits(model::SiluFunction{.beta = static_cast<float>(std::log(odds))}))
    return layer;
  if (lowest < highest && fits(model::HardTanhFunction{.min_value = lowest, .max_value = highest}))
    return layer;
  return nullptr;
}

bool is_same_array(const Array& a, const Array& b) {
  return a.node == b.node && a.shape == b.shape && a.before == b.before && a.after == b.after &&
         a.axes == b.axes && a.order == b.order;
}

}  // namespace

/// The function `tensor` as an array. Adds the layers that compute it.
Array Importer::materialized(const Node& node, const std::string& tensor) {
  const Imported& found = imported(node, tensor);
  if (const auto* const array = std::get_if<Array>(&found)) return *array;
  const auto* const pointer = std::get_if<Function>(&found);
  if (pointer == nullptr)
    refuse(node, "expected inputs that depend on those of the graph",
           fmt::format("\"{}\" is a constant", tensor));
  const Function function = *pointer;
  Array result = function.input;
  if (!are_near(function.samples, kPoints)) {
    std::shared_ptr<const model::Layer> layer = known_function(function.samples);
    if (layer == nullptr && function.operands.size() == 2) {
      result = combined(*function.node, materialized(*function.node, function.operands[0]),
                        materialized(*function.node, function.operands[1]));
    } else {
      if (layer == nullptr && function.depth > 1 && !function.operands.empty()) {
        layer = known_function(function.step);
        if (layer != nullptr) result = materialized(*function.node, function.operands[0]);
      }
      if (layer == nullptr)
        refuse(
            *function.node, "expected a function that is one of the activations (docs/models.md)",
            fmt::format(
                "\"{}\" is another function of the output of {}", tensor,
                model::is_input(result.node)
                    ? "an input"
                    : fmt::format("layer \"{}\"",
                                  network_.nodes()[static_cast<std::size_t>(result.node)].name)));
      result.node = add_layer(*function.node, std::move(layer), {result.node}, "");
    }
  }
  tensors_.insert_or_assign(tensor, result);
  return result;
}

/// The tensor as a function: the identity for an array, nullopt for constants.
std::optional<Function> Importer::as_function(const Node& node, const std::string& tensor) {
  const Imported& found = imported(node, tensor);
  if (const auto* const function = std::get_if<Function>(&found)) {
    // Several readers are functions of its output, such as x * sigmoid(x).
    const auto readers = readers_.find(tensor);
    const bool is_layer =
        known_function(function->samples) != nullptr ||
        (function->operands.size() == 1 && known_function(function->step) != nullptr);
    if (readers == readers_.end() || readers->second.size() < 2 || !is_layer) return *function;
    return Function{.input = materialized(node, tensor), .samples = kPoints, .node = &node};
  }
  if (const auto* const array = std::get_if<Array>(&found))
    return Function{.input = *array, .samples = kPoints, .node = &node};
  return std::nullopt;
}

/// The function of `tensor` whose last step has the values `step` for kPoints.
void Importer::add_function(const Node& node, const std::string& tensor,
                            const std::function<double(double)>& step) {
  auto function = as_function(node, tensor);
  if (!function)
    refuse(node, "expected an input that depends on those of the graph", "it is constant");
  if (function->depth >= kDeepestFunction)
    function = Function{.input = materialized(node, tensor), .samples = kPoints};
  std::ranges::transform(function->samples, function->samples.begin(), step);
  function->node = &node;
  function->operands = {tensor};
  function->step = sampled(step);
  ++function->depth;
  set(node, *function);
}

/// A function of one input.
void Importer::import_function(const Node& node) {
  if (!has_input(node, 0)) refuse(node, "expected an input", "it is missing");
  if (const auto function = element_function(node))
    return add_function(node, node.inputs.front(), function);
  // Clip
  const auto limit = [&](std::size_t index, double otherwise) {
    if (!has_input(node, index)) return otherwise;
    const Constant* const constant = constant_at(node, index);
    if (constant == nullptr || !constant->scalar())
      refuse(node, "expected limits that are constants", "they are computed");
    return *constant->scalar();
  };
  const double least = limit(1, -std::numeric_limits<double>::infinity());
  const double most = limit(2, std::numeric_limits<double>::infinity());
  add_function(node, node.inputs.front(),
               [&](double x) { return std::min(std::max(x, least), most); });
}

/// A sum, difference, product, quotient or power of two inputs.
void Importer::import_combination(const Node& node) {
  if (!has_input(node, 0) || !has_input(node, 1) || node.inputs.size() != 2)
    refuse(node, "expected two inputs", fmt::format("got {}", node.inputs.size()));
  const std::string& type = node.type;
  const BinaryFunction compares = comparison_function(type);
  const BinaryFunction apply = compares != nullptr ? compares : binary_function(type);
  const auto a = as_function(node, node.inputs[0]);
  const auto b = as_function(node, node.inputs[1]);
  if (!a || !b) {
    const std::size_t index = a ? 0 : 1;  // that is the array
    const Constant* const constant = constant_at(node, 1 - index);
    if ((!a && !b) || constant == nullptr)
      refuse(node, "expected constants that can be computed before the graph runs", "got others");
    const auto value = constant->scalar();
    if (value && constant->shape.size() <= (a ? a : b)->input.shape.size())
      return add_function(node, node.inputs[index], [&](double x) {
        return index == 0 ? apply(x, *value) : apply(*value, x);
      });
    return add_scale(node, index, *constant);
  }
  const int depth = std::max(a->depth, b->depth) + 1;
  if (is_same_array(a->input, b->input) && depth <= kDeepestFunction) {
    Function function = *a;
    for (std::size_t k = 0; k < kPoints.size(); ++k)
      function.samples[k] = apply(a->samples[k], b->samples[k]);
    function.node = &node;
    function.operands = node.inputs;
    function.depth = depth;
    return set(node, function);
  }
  set(node, combined(node, materialized(node, node.inputs[0]), materialized(node, node.inputs[1])));
}

/// A choice between two functions of an array, or numbers, by a comparison of its elements.
void Importer::import_choice(const Node& node) {
  std::optional<Function> result;
  std::array<Samples, 3> samples{};
  for (std::size_t k = 0; k < samples.size(); ++k) {
    if (!has_input(node, k)) refuse(node, "expected three inputs", "one is missing");
    if (const Constant* const constant = constant_at(node, k)) {
      if (!constant->scalar())
        refuse(node, "expected numbers, or functions of one array", "a constant has several");
      samples[k].fill(*constant->scalar());
      continue;
    }
    const Function function = *as_function(node, node.inputs[k]);
    if (result && !is_same_array(result->input, function.input))
      refuse(node, "expected numbers, or functions of one array", "it reads several arrays");
    samples[k] = function.samples;
    const int depth = std::max(result ? result->depth : 0, function.depth);
    result = function;
    result->depth = depth;
  }
  if (!result) refuse(node, "expected numbers, or functions of one array", "all are constants");
  for (std::size_t k = 0; k < kPoints.size(); ++k)
    result->samples[k] = samples[samples[0][k] != 0 ? 1 : 2][k];
  result->node = &node;
  result->operands.clear();
  ++result->depth;
  set(node, *result);
}

/// The sum, the difference or the product of two arrays.
Array Importer::combined(const Node& node, Array a, Array b) {
  const bool multiplies = node.type == "Mul";
  if (!multiplies && node.type != "Add" && node.type != "Sub")
    refuse(node, "expected a constant as one of its inputs", "both depend on those of the graph");
  // Uses the order of the larger one, or of the first one, which is channels last if one is.
  const bool is_smaller =
      model::element_count(a.sample()) < model::element_count(b.sample()) && multiplies;
  if (is_smaller) std::swap(a, b);
  bool is_broadcast = multiplies && a.shape.size() == b.shape.size() && !a.is_merged();
  for (std::size_t axis = 0; is_broadcast && axis < a.shape.size(); ++axis)
    is_broadcast = b.shape[axis] == 1 || b.shape[axis] == a.shape[axis];
  if ((a.shape != b.shape && !is_broadcast) || a.before != b.before || a.after != b.after)
    refuse(node, "expected two inputs of one shape",
           fmt::format("those of a sample are {} and {}", model::to_string(a.sample()),
                       model::to_string(b.sample())));
  Array result = with_sample_axes(node, a);
  std::vector<NodeId> inputs = {arranged(node, result, result.order),
                                arranged(node, b, result.order)};
  if (node.type == "Sub") inputs[1] = add(node, model::Rescaling({.scale = -1}), {inputs[1]});
  result.node = multiplies ? add(node, model::Multiply(), inputs) : add(node, model::Add(), inputs);
  return result;
}

/// The axes of the samples along which a constant that is combined with `input` has several
/// elements; nullopt if it does not fit.
std::optional<Axes> Importer::axes_of(const Array& input, const Constant& constant) const {
  const std::size_t rank = input.shape.size();
  if (constant.floats() == nullptr || constant.has_batch() || constant.shape.size() > rank)
    return std::nullopt;
  Axes axes;
  for (std::size_t k = 0; k < constant.shape.size(); ++k) {
    const std::size_t axis = rank - constant.shape.size() + k;
    if (constant.shape[k] == 1) continue;
    if (constant.shape[k] != input.shape[axis]) return std::nullopt;
    axes.push_back(input.sample_axis(axis));
  }
  return axes;
}

/// input * scales + offsets, where both have the elements of the axes `axes`, or are empty.
Array Importer::scaled(const Node& node, const Array& input, const Axes& axes,
                       std::vector<float> scales, std::vector<float> offsets, bool trainable,
                       const std::string& name) {
  Array output = with_sample_axes(node, input);
  Axes order;
  for (const std::size_t axis : output.order)
    if (std::ranges::find(axes, axis) == axes.end()) order.push_back(axis);
  order.insert(order.end(), axes.begin(), axes.end());
  NodeId from = arranged(node, output, order);
  Shape shape;
  for (std::size_t k = 0; k + axes.size() < order.size(); ++k)
    shape.push_back(output.axes[order[k]]);
  shape.push_back(static_cast<std::int64_t>(std::max(scales.size(), offsets.size())));
  if (network_.shape(from) != shape) from = moved(node, from, shape, std::nullopt);
  output.order = order;
  output.node =
      add(node,
          model::Scale(
              {.use_scale = !scales.empty(), .use_bias = !offsets.empty(), .trainable = trainable}),
          {from}, name);
  if (!scales.empty()) set_weights(output.node, "gamma", std::move(scales));
  if (!offsets.empty()) set_weights(output.node, "beta", std::move(offsets));
  return output;
}

/// The product with, or the addition of, a constant along some axes of the samples.
void Importer::add_scale(const Node& node, std::size_t index, const Constant& constant) {
  const Array input = any_array_at(node, index);
  const std::optional<Axes> axes = axes_of(input, constant);
  const bool adds = node.type == "Add" || node.type == "Sub";
  if (!axes || axes->empty() || (!adds && node.type != "Mul" && node.type != "Div") ||
      (node.type == "Div" && index == 1))
    refuse(node, "expected a constant factor or summand along axes of the samples",
           fmt::format("the constant is {}, a sample {}", model::to_string(constant.shape),
                       model::to_string(input.sample())));
  const bool are_positions = node.type == "Add" && input.batch() == 0 && !input.is_merged() &&
                             input.shape.size() == 3 && axes->back() == 1;
  if (are_positions &&
      (constant.is_weight ||
       *constant.floats() == model::sinusoidal_table(input.shape[1], input.shape[2])))
    return add_positions(node, index, constant);
  // Numbers of the program, such as a mask of attention, are no weights.
  bool is_weight = constant.is_weight && std::ranges::none_of(*constant.floats(), [](float value) {
                     return value <= kLeastWeight;
                   });
  const auto negate = [](std::vector<float>& values) {
    for (float& value : values) value = -value;
  };
  std::vector<float> scales = *constant.floats();
  // Infinity hides a position as well as this number does, which checkpoints can store.
  for (float& value : scales) value = std::max(value, kHiding);
  std::vector<float> offsets;
  const Node* last = &node;
  if (node.type == "Div")
    for (float& scale : scales) scale = 1 / scale;
  if (adds) offsets.swap(scales);
  if (node.type == "Sub" && index == 0) negate(offsets);
  Array array = input;
  if (node.type == "Sub" && index == 1)
    array.node = add(node, model::Rescaling({.scale = -1}), {array.node});
  // An unfused batch normalization is a product and a sum.
  if (const Node* const reader = only_reader(node);
      !adds && reader != nullptr && (reader->type == "Add" || reader->type == "Sub") &&
      reader->domain.empty() && reader->inputs.size() == 2 && !reader->outputs.empty()) {
    const bool is_first = reader->inputs[0] == node.outputs.front();
    const std::string& other = reader->inputs[is_first ? 1 : 0];
    const auto* const summand =
        is_computable(other) ? std::get_if<Constant>(&imported(*reader, other)) : nullptr;
    if (summand != nullptr && axes_of(input, *summand) == axes &&
        (is_first || reader->type == "Add")) {
      offsets = *summand->floats();
      is_weight = is_weight || summand->is_weight;
      if (reader->type == "Sub") negate(offsets);
      last = reader;
      done_.insert(reader);
    }
  }
  set(*last, scaled(node, array, *axes, std::move(scales), std::move(offsets), is_weight,
                    layer_name(node, 1 - index)));
}

/// max(x, 0) + slope * min(x, 0), as the sum of max(x, 0) and of -slope * max(-x, 0).
void Importer::import_prelu(const Node& node) {
  const Array input = any_array_at(node, 0);
  const Constant& slopes = weights_at(node, 1);
  const std::optional<Axes> axes = axes_of(input, slopes);
  if (!axes) refuse(node, "expected slopes along axes of the samples", "got others");
  std::vector<float> scales = *slopes.floats();
  for (float& scale : scales) scale = -scale;
  Array output = input;
  output.node = add(node, model::ReLU(), {input.node});
  Array below = input;
  below.node = add(node, model::ReLU(), {add(node, model::Rescaling({.scale = -1}), {input.node})});
  below = scaled(node, below, *axes, std::move(scales), {}, true, layer_name(node, 1));
  output = with_sample_axes(node, output);
  output.node = add(node, model::Add(),
                    {arranged(node, output, output.order), arranged(node, below, output.order)});
  set(node, output);
}

/// The addition of one row per position, or of one row to all positions.
void Importer::add_positions(const Node& node, std::size_t index, const Constant& rows) {
  const Array input = samples_at(node, index);
  const Shape sample = input.sample();
  using Kind = model::PositionalEmbedding::Kind;
  const bool is_constant = model::element_count(rows.shape) == sample[1] && sample[0] > 1;
  Array output = input;
  const std::string& weights = node.inputs[1 - index];
  const bool is_named =
      initializers_.contains(weights) && weights.find_first_of(":/") == std::string::npos;
  const std::vector<float>& values = *rows.floats();
  const Kind kind = is_constant                                               ? Kind::constant
                    : values == model::sinusoidal_table(sample[0], sample[1]) ? Kind::sinusoidal
                                                                              : Kind::learned;
  output.node = add(node, model::PositionalEmbedding({.kind = kind}), {plain(node, input)},
                    is_named ? weights : layer_name(node, 1 - index));
  output.axes = sample;
  output.order = {0, 1};
  if (kind != Kind::sinusoidal) set_weights(output.node, "embeddings", values);
  set(node, output);
}

void Importer::import_softmax(const Node& node) {
  const Array input = any_array_at(node, 0);
  const std::size_t rank = input.shape.size();
  const auto axis = axis_of(Attributes(node).integer("axis", model_.opset < 13 ? 1 : -1), rank);
  // Until version 13 it was over all axes from this one on.
  if (!axis || *axis == input.batch() || (model_.opset < 13 && *axis + 1 != rank))
    refuse(node, "expected a softmax over one axis of the samples",
           "it is over another or several");
  Array output = with_sample_axes(node, input);
  const std::size_t last = output.sample_axis(*axis);
  std::erase(output.order, last);
  output.order.push_back(last);
  output.node = add(node, model::Softmax(), {arranged(node, input, output.order)});
  set(node, output);
}

void Importer::import_dropout(const Node& node) {
  const Array input = any_array_at(node, 0);
  float rate = Attributes(node).number("ratio", 0.5f);
  if (has_input(node, 1)) {
    const Constant* const ratio = constant_at(node, 1);
    if (ratio == nullptr || !ratio->scalar())
      refuse(node, "expected a constant ratio", "it is computed");
    rate = static_cast<float>(*ratio->scalar());
  }
  if (is_used(node, 1)) refuse(node, "expected its first output only", "its mask is read");
  Array output = input;
  output.node = add(node, model::Dropout({.rate = rate}), {input.node});
  set(node, output);
}

}  // namespace lockstep::inline v0::onnx
