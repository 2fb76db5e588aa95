#include "lockstep/onnx/triton.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <variant>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

const char* name_of(TensorType type) {
  switch (type) {
    case TensorType::float32:
      return "TYPE_FP32";
    case TensorType::uint8:
      return "TYPE_UINT8";
    case TensorType::int8:
      return "TYPE_INT8";
    case TensorType::int32:
      return "TYPE_INT32";
    case TensorType::int64:
      return "TYPE_INT64";
    case TensorType::string:
      return "TYPE_STRING";
    case TensorType::boolean:
      return "TYPE_BOOL";
    case TensorType::float16:
      return "TYPE_FP16";
    case TensorType::float64:
      return "TYPE_FP64";
    case TensorType::bfloat16:
      return "TYPE_BF16";
  }
  LOCKSTEP_CHECK(false);
}

/// A string of protobuf's text format.
std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) switch (c) {
      case '"':
      case '\\':
        quoted += '\\';
        quoted += c;
        break;
      case '\n':
        quoted += "\\n";
        break;
      default:
        quoted += c;
    }
  return quoted + '"';
}

std::string value_text(const Value& value, const std::string& more) {
  std::vector<std::int64_t> extents;
  for (std::size_t axis = 1; axis < value.shape.size(); ++axis) {
    const auto* const number = std::get_if<std::int64_t>(&value.shape[axis]);
    extents.push_back(number == nullptr ? -1 : *number);
  }
  // Triton has no arrays without axes.
  const bool is_number = extents.empty();
  if (is_number) extents.push_back(1);
  return fmt::format("  {{\n    name: {}\n    data_type: {}\n    dims: [ {} ]\n{}{}  }}",
                     quoted(value.name), name_of(value.type), fmt::join(extents, ", "),
                     is_number ? "    reshape: { shape: [ ] }\n" : "", more);
}

std::string values_text(const char* key, const std::vector<Value>& values,
                        std::optional<std::size_t> labelled = {}) {
  std::vector<std::string> texts;
  for (const Value& value : values)
    texts.push_back(
        value_text(value, texts.size() == labelled ? "    label_filename: \"labels.txt\"\n" : ""));
  return fmt::format("{} [\n{}\n]\n", key, fmt::join(texts, ",\n"));
}

}  // namespace

std::string triton_config(const Model& model, const std::string& name,
                          std::optional<std::size_t> labelled) {
  return fmt::format(
      "name: {}\nbackend: \"onnxruntime\"\nmax_batch_size: {}\n{}{}dynamic_batching {{ }}\n",
      quoted(name), kMaxTritonBatch, values_text("input", model.graph.inputs),
      values_text("output", model.graph.outputs, labelled));
}

}  // namespace lockstep::inline v0::onnx
