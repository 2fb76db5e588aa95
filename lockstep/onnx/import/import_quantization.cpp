// Imports quantized graphs in QDQ form: a DequantizeLinear of equal scale follows each
// QuantizeLinear, so that values in between are floats.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/onnx/import/importer.h"

namespace lockstep::inline v0::onnx {

/// The type of the zero point, or of the attribute output_dtype; by default uint8.
TensorType Importer::quantized_type(const Node& node) const {
  const auto stated = static_cast<TensorType>(Attributes(node).integer("output_dtype", 0));
  if (!has_input(node, 2)) return stated == TensorType{} ? TensorType::uint8 : stated;
  const std::string& name = node.inputs[2];
  if (const auto found = initializers_.find(name); found != initializers_.end())
    return found->second->type;
  const auto producer = producers_.find(name);
  const Node* const constant =
      producer == producers_.end() ? nullptr : &model_.graph.nodes[producer->second];
  const Tensor* const value = constant == nullptr ? nullptr : Attributes(*constant).tensor("value");
  if (value == nullptr) refuse(node, "expected a zero point that is a constant", "it is computed");
  return value->type;
}

/// Scale and zero point of a QuantizeLinear, or of a DequantizeLinear of the output of one.
model::FakeQuantizeFunction Importer::quantization(const Node& node) {
  const Constant* const scale = constant_at(node, 1);
  const Constant* const zero = constant_at(node, 2);
  if (scale == nullptr || !scale->scalar() || (has_input(node, 2) && zero == nullptr) ||
      (zero != nullptr && (!zero->scalar() || zero->integers() == nullptr)))
    refuse(node,
           "expected one constant scale and zero point for all values of an array that "
           "depends on the inputs of the graph",
           "there are several, or they are computed");
  const TensorType type = quantized_type(node);
  if (type != TensorType::int8 && type != TensorType::uint8)
    refuse(node, "expected integers of the type int8 or uint8",
           fmt::format("they are of the type {}", static_cast<std::int32_t>(type)));
  return {.scale = static_cast<float>(*scale->scalar()),
          .zero_point =
              zero == nullptr ? 0 : static_cast<int>(std::clamp(*zero->scalar(), -1000.0, 1000.0)),
          .dtype = type == TensorType::int8 ? model::Int8Type::int8 : model::Int8Type::uint8};
}

/// Adds the layer; the DequantizeLinear that follows adds none.
void Importer::import_quantize(const Node& node) {
  if (!has_input(node, 0)) refuse(node, "expected an input", "it is missing");
  const std::string& output = node.outputs.front();
  const auto readers = readers_.find(output);
  const bool is_read_back = !outputs_.contains(output) && readers != readers_.end() &&
                            std::ranges::all_of(readers->second, [&](const Node* reader) {
                              return reader->type == "DequantizeLinear" && reader->domain.empty() &&
                                     reader->inputs.front() == output &&
                                     std::ranges::count(reader->inputs, output) == 1;
                            });
  if (!is_read_back)
    refuse(node, "expected a DequantizeLinear after it, and nothing else that reads its integers",
           fmt::format("\"{}\" has another reader", output));
  const model::FakeQuantizeFunction function = quantization(node);
  // Weights of quantization-aware training that were not folded.
  if (const Constant* const constant = constant_at(node, 0)) {
    if (constant->floats() == nullptr)
      refuse(node, "expected numbers of floating point to quantize", "got integers");
    std::vector<std::int64_t> integers;
    for (const float value : *constant->floats()) {
      const float level = std::nearbyint(value / function.scale);
      if (!(function.scale > 0) || std::isnan(level))
        refuse(node, "expected finite numbers and a scale above 0 to quantize", "got others");
      integers.push_back(
          static_cast<std::int64_t>(std::clamp(level, function.least(), function.largest())) +
          function.zero_point);
    }
    Constant result = *constant;
    result.values = std::make_shared<const std::vector<std::int64_t>>(std::move(integers));
    return set(node, std::move(result));
  }
  Array array = array_at(node, 0);
  array.node = add(node, model::FakeQuantize(function), {array.node});
  quantized_.emplace(output, function);
  set(node, std::move(array));
}

void Importer::import_dequantize(const Node& node) {
  const auto found = has_input(node, 0) ? quantized_.find(node.inputs.front()) : quantized_.end();
  if (found == quantized_.end())
    refuse(node,
           "expected the integers of a QuantizeLinear, or constants with a scale for all of "
           "them or for each channel",
           "got others");
  const model::FakeQuantizeFunction before = found->second;
  const model::FakeQuantizeFunction own = quantization(node);
  if (own.scale != before.scale || own.zero_point != before.zero_point)
    refuse(node, "expected the scale and the zero point of the QuantizeLinear before it",
           fmt::format("got {} and {} instead of {} and {}", own.scale, own.zero_point,
                       before.scale, before.zero_point));
  set(node, array_at(node, 0));
}

}  // namespace lockstep::inline v0::onnx
