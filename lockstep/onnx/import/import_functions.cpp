// Imports elementwise functions, sums and products.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "lockstep/model/layers/elementwise/elementwise.h"
#include "lockstep/model/layers/elementwise/gelu.h"
#include "lockstep/model/layers/elementwise/leaky_relu.h"
#include "lockstep/model/layers/elementwise/relu6.h"
#include "lockstep/model/layers/elementwise/sigmoid.h"
#include "lockstep/model/layers/elementwise/silu.h"
#include "lockstep/model/layers/elementwise/tanh.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"
#include "lockstep/model/layers/layers.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::NodeId;
using model::Shape;

constexpr int kDeepestFunction = 64;

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

/// The function of the operator `type`.
std::function<double(double)> function_of(const char* type, std::vector<Attribute> options = {}) {
  Node node;
  node.type = type;
  node.attributes = std::move(options);
  return element_function(node);
}

/// The layer that computes a function; null if there is none.
std::shared_ptr<const model::Layer> known_function(const Samples& samples) {
  static const auto logistic = function_of("Sigmoid");
  static const auto gelu = function_of("Gelu");
  static const auto gelu_by_tanh =
      function_of("Gelu", {{.name = "approximate", .value = std::string("tanh")}});
  const auto is = [&](const auto& function) { return are_near(samples, sampled(function)); };
  if (is([](double x) { return std::max(x, 0.0); })) return std::make_shared<const model::ReLU>();
  if (is([](double x) { return std::clamp(x, 0.0, 6.0); }))
    return std::make_shared<const model::ReLU6>();
  if (is(logistic)) return std::make_shared<const model::Sigmoid>();
  if (is([](double x) { return std::tanh(x); })) return std::make_shared<const model::Tanh>();
  if (is([](double x) { return x * logistic(x); })) return std::make_shared<const model::SiLU>();
  if (is(gelu)) return std::make_shared<const model::GELU>();
  if (is(gelu_by_tanh))
    return std::make_shared<const model::GELU>(model::GeluFunction{.approximate = true});
  const double slope = samples[5] / kPoints[5];  // kPoints[5] is -1
  if (slope >= 0 && slope <= 1 && is([&](double x) { return x < 0 ? slope * x : x; }))
    return std::make_shared<const model::LeakyReLU>(
        model::LeakyReluFunction{.negative_slope = static_cast<float>(slope)});
  return nullptr;
}

bool is_same_array(const Array& a, const Array& b) {
  return a.node == b.node && a.shape == b.shape && a.axes == b.axes && a.order == b.order;
}

}  // namespace

/// The function `tensor` as an array. Adds the layer that computes it.
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
    if (auto layer = known_function(function.samples)) {
      result.node = add_layer(*function.node, std::move(layer), {result.node}, "");
    } else if (function.operands) {
      const Array a = materialized(*function.node, function.operands->first);
      const Array b = materialized(*function.node, function.operands->second);
      result = combined(*function.node, a, b, function.node->type == "Mul");
    } else {
      refuse(*function.node, "expected a function that is one of the activations (docs/models.md)",
             fmt::format(
                 "\"{}\" is another function of the output of {}", tensor,
                 model::is_input(result.node)
                     ? "an input"
                     : fmt::format("layer \"{}\"",
                                   network_.nodes()[static_cast<std::size_t>(result.node)].name)));
    }
  }
  tensors_.insert_or_assign(tensor, result);
  return result;
}

/// The tensor as a function: the identity for an array, nullopt for constants.
std::optional<Function> Importer::as_function(const Node& node, const std::string& tensor) {
  const Imported& found = imported(node, tensor);
  if (const auto* const function = std::get_if<Function>(&found)) return *function;
  if (const auto* const array = std::get_if<Array>(&found))
    return Function{.input = *array, .samples = kPoints, .node = &node};
  return std::nullopt;
}

/// A function of one input.
void Importer::import_function(const Node& node) {
  if (!has_input(node, 0)) refuse(node, "expected an input", "it is missing");
  // Composes functions of functions.
  auto function = as_function(node, node.inputs.front());
  if (!function)
    refuse(node, "expected an input that depends on those of the graph", "it is constant");
  if (!are_near(function->samples, kPoints) && known_function(function->samples) != nullptr)
    function = Function{.input = materialized(node, node.inputs.front()), .samples = kPoints};
  function->node = &node;
  function->operands.reset();
  function->depth = 0;
  const auto apply = [&](const auto& one) {
    std::ranges::transform(function->samples, function->samples.begin(), one);
  };
  if (const auto own = element_function(node)) {
    apply(own);
  } else {  // Clip
    const auto limit = [&](std::size_t index, double otherwise) {
      if (!has_input(node, index)) return otherwise;
      const Constant* const constant = constant_at(node, index);
      if (constant == nullptr || !constant->scalar())
        refuse(node, "expected limits that are constants", "they are computed");
      return *constant->scalar();
    };
    const double least = limit(1, -std::numeric_limits<double>::infinity());
    const double most = limit(2, std::numeric_limits<double>::infinity());
    apply([&](double x) { return std::min(std::max(x, least), most); });
  }
  set(node, *function);
}

/// A sum, difference, product, quotient or power of two inputs.
void Importer::import_combination(const Node& node) {
  if (!has_input(node, 0) || !has_input(node, 1) || node.inputs.size() != 2)
    refuse(node, "expected two inputs", fmt::format("got {}", node.inputs.size()));
  const std::string& type = node.type;
  const BinaryFunction apply = binary_function(type);
  const auto a = as_function(node, node.inputs[0]);
  const auto b = as_function(node, node.inputs[1]);
  if (!a || !b) {
    const Constant* const constant = constant_at(node, a ? 1 : 0);
    if ((!a && !b) || constant == nullptr)
      refuse(node, "expected constants that can be computed before the graph runs", "got others");
    Function function = a ? *a : *b;
    const auto value = constant->scalar();
    if (value && constant->shape.size() <= function.input.shape.size()) {
      for (double& sample : function.samples)
        sample = a ? apply(sample, *value) : apply(*value, sample);
      function.node = &node;
      function.operands.reset();
      function.depth = 0;
      return set(node, function);
    }
    return add_positions(node, a ? 0 : 1, *constant);
  }
  const bool has_layer = type == "Add" || type == "Mul";
  const int depth = std::max(a->depth, b->depth) + 1;
  if (is_same_array(a->input, b->input) && depth <= kDeepestFunction) {
    Function function = *a;
    for (std::size_t k = 0; k < kPoints.size(); ++k)
      function.samples[k] = apply(a->samples[k], b->samples[k]);
    function.node = &node;
    function.operands.reset();
    if (has_layer) function.operands = std::pair(node.inputs[0], node.inputs[1]);
    function.depth = depth;
    return set(node, function);
  }
  if (!has_layer)
    refuse(node, "expected a constant as one of its inputs", "both depend on those of the graph");
  const Array left = materialized(node, node.inputs[0]);
  const Array right = materialized(node, node.inputs[1]);
  set(node, combined(node, left, right, type == "Mul"));
}

Array Importer::combined(const Node& node, const Array& a, const Array& b, bool multiplies) {
  if (a.shape != b.shape)
    refuse(node, "expected two inputs of one shape",
           fmt::format("those of a sample are {} and {}", model::to_string(a.sample()),
                       model::to_string(b.sample())));
  // Uses the order of the first one, which is channels last if one of them is.
  Array result = with_sample_axes(node, a);
  const std::vector<NodeId> inputs = {arranged(node, result, result.order),
                                      arranged(node, b, result.order)};
  result.node = multiplies ? add(node, model::Multiply(), inputs) : add(node, model::Add(), inputs);
  return result;
}

/// The addition of one row per position, or of one row to all positions.
void Importer::add_positions(const Node& node, std::size_t index, const Constant& rows) {
  const Array input = samples_at(node, index);
  const Shape sample = input.sample();
  Shape shape = rows.shape;
  while (shape.size() > sample.size() && shape.front() == 1) shape.erase(shape.begin());
  using Kind = model::PositionalEmbedding::Kind;
  const Shape one_row{1, sample.empty() ? 0 : sample.back()};
  const bool is_constant = shape == one_row && shape != sample;
  if (node.type != "Add" || sample.size() != 2 || (shape != sample && !is_constant) ||
      rows.floats() == nullptr || rows.has_batch())
    refuse(node,
           "expected a constant number, or for an addition a constant row [1, D], or one "
           "for each position",
           fmt::format("the constant is {}, a sample {}", model::to_string(rows.shape),
                       model::to_string(sample)));
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
  const Array input = samples_at(node, 0);
  const std::size_t rank = input.shape.size();
  const auto axis = axis_of(Attributes(node).integer("axis", model_.opset < 13 ? 1 : -1), rank);
  // Until version 13 it was over all axes from this one on.
  if (!axis || *axis == 0 || (model_.opset < 13 && *axis + 1 != rank))
    refuse(node, "expected a softmax over one axis of the samples",
           "it is over another or several");
  Array output = input;
  output.axes = input.sample();
  output.order.clear();
  for (std::size_t k = 1; k < rank; ++k)
    if (k != *axis) output.order.push_back(k - 1);
  output.order.push_back(*axis - 1);
  output.node = add(node, model::Softmax(), {arranged(node, input, output.order)});
  set(node, output);
}

void Importer::import_dropout(const Node& node) {
  const Array input = array_at(node, 0);
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
