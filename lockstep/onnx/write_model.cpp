#include "lockstep/onnx/write_model.h"

#include <fmt/format.h>

#include <protozero/pbf_builder.hpp>
#include <set>
#include <type_traits>
#include <variant>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::onnx {
namespace {

// Field numbers of the messages of onnx.proto. Lists of numbers are not packed, as in onnx.proto.
using Tag = protozero::pbf_tag_type;
enum class ModelField : Tag {
  ir_version = 1,
  producer_name = 2,
  producer_version = 3,
  graph = 7,
  opset_import = 8,
  metadata_props = 14,
};
enum class OpsetField : Tag { domain = 1, version = 2 };
enum class EntryField : Tag { key = 1, value = 2 };
enum class GraphField : Tag { node = 1, name = 2, initializer = 5, input = 11, output = 12 };
enum class NodeField : Tag {
  input = 1,
  output = 2,
  name = 3,
  op_type = 4,
  attribute = 5,
  domain = 7,
};
enum class AttributeField : Tag {
  name = 1,
  f = 2,
  i = 3,
  s = 4,
  t = 5,
  floats = 7,
  ints = 8,
  strings = 9,
  type = 20,
};
enum class TensorField : Tag { dims = 1, data_type = 2, name = 8, raw_data = 9 };
enum class ValueField : Tag { name = 1, type = 2 };
enum class TypeField : Tag { tensor_type = 1 };
enum class TensorTypeField : Tag { elem_type = 1, shape = 2 };
enum class ShapeField : Tag { dim = 1 };
enum class DimensionField : Tag { dim_value = 1, dim_param = 2 };

// AttributeProto.AttributeType of each alternative of Attribute::value.
constexpr std::int32_t kAttributeTypes[] = {1, 2, 3, 4, 6, 7, 8};

void write_tensor(protozero::pbf_builder<TensorField> to, const Tensor& tensor) {
  LOCKSTEP_CHECK(tensor.type != TensorType::string);
  for (const std::int64_t extent : tensor.shape) to.add_int64(TensorField::dims, extent);
  to.add_int32(TensorField::data_type, static_cast<std::int32_t>(tensor.type));
  if (!tensor.name.empty()) to.add_string(TensorField::name, tensor.name);
  to.add_bytes(TensorField::raw_data, tensor.bytes);
}

void write_attribute(protozero::pbf_builder<AttributeField> to, const Attribute& attribute) {
  to.add_string(AttributeField::name, attribute.name);
  const auto write = [&]<typename T>(const T& value) {
    if constexpr (std::is_same_v<T, float>) {
      to.add_float(AttributeField::f, value);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      to.add_int64(AttributeField::i, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      to.add_bytes(AttributeField::s, value);
    } else if constexpr (std::is_same_v<T, Tensor>) {
      write_tensor({to, AttributeField::t}, value);
    } else if constexpr (std::is_same_v<T, std::vector<float>>) {
      for (const float one : value) to.add_float(AttributeField::floats, one);
    } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>>) {
      for (const std::int64_t one : value) to.add_int64(AttributeField::ints, one);
    } else {
      for (const std::string& one : value) to.add_bytes(AttributeField::strings, one);
    }
  };
  std::visit(write, attribute.value);
  to.add_enum(AttributeField::type, kAttributeTypes[attribute.value.index()]);
}

void write_node(protozero::pbf_builder<NodeField> to, const Node& node) {
  for (const std::string& input : node.inputs) to.add_string(NodeField::input, input);
  for (const std::string& output : node.outputs) to.add_string(NodeField::output, output);
  if (!node.name.empty()) to.add_string(NodeField::name, node.name);
  to.add_string(NodeField::op_type, node.type);
  for (const Attribute& attribute : node.attributes)
    write_attribute({to, NodeField::attribute}, attribute);
  if (!node.domain.empty()) to.add_string(NodeField::domain, node.domain);
}

void write_value(protozero::pbf_builder<ValueField> to, const Value& value) {
  to.add_string(ValueField::name, value.name);
  protozero::pbf_builder<TypeField> type(to, ValueField::type);
  protozero::pbf_builder<TensorTypeField> tensor(type, TypeField::tensor_type);
  tensor.add_int32(TensorTypeField::elem_type, static_cast<std::int32_t>(value.type));
  protozero::pbf_builder<ShapeField> shape(tensor, TensorTypeField::shape);
  for (const Extent& extent : value.shape) {
    protozero::pbf_builder<DimensionField> dimension(shape, ShapeField::dim);
    if (const auto* const number = std::get_if<std::int64_t>(&extent))
      dimension.add_int64(DimensionField::dim_value, *number);
    else
      dimension.add_string(DimensionField::dim_param, std::get<std::string>(extent));
  }
}

void write_graph(protozero::pbf_builder<GraphField> to, const Graph& graph) {
  for (const Node& node : graph.nodes) write_node({to, GraphField::node}, node);
  to.add_string(GraphField::name, graph.name);
  for (const Tensor& tensor : graph.initializers)
    write_tensor({to, GraphField::initializer}, tensor);
  for (const Value& input : graph.inputs) write_value({to, GraphField::input}, input);
  for (const Value& output : graph.outputs) write_value({to, GraphField::output}, output);
}

// The bytes of the weights, which dominate the file.
std::size_t weight_bytes(const Model& model) {
  std::size_t bytes = 0;
  for (const Tensor& tensor : model.graph.initializers) bytes += tensor.bytes.size();
  return bytes;
}

void check_size(std::size_t bytes, std::size_t limit) {
  if (bytes > limit)
    throw Error(ErrorCategory::input, "ONNX",
                fmt::format("expected a model of at most {} bytes", limit),
                fmt::format("got {} bytes", bytes));
}

}  // namespace

std::string write_model(const Model& model, std::size_t limit) {
  check_size(weight_bytes(model), limit);
  std::string bytes;
  bytes.reserve(weight_bytes(model) + (std::size_t{1} << 16));
  protozero::pbf_builder<ModelField> to(bytes);
  to.add_int64(ModelField::ir_version, model.ir_version);
  if (!model.producer.empty()) to.add_string(ModelField::producer_name, model.producer);
  if (!model.producer_version.empty())
    to.add_string(ModelField::producer_version, model.producer_version);
  write_graph({to, ModelField::graph}, model.graph);
  std::set<std::string> domains;
  for (const Node& node : model.graph.nodes) domains.insert(node.domain);
  domains.insert("");
  for (const std::string& domain : domains) {
    protozero::pbf_builder<OpsetField> opset(to, ModelField::opset_import);
    opset.add_string(OpsetField::domain, domain);
    opset.add_int64(OpsetField::version, domain.empty() ? model.opset : 1);
  }
  for (const auto& [key, value] : model.metadata) {
    protozero::pbf_builder<EntryField> entry(to, ModelField::metadata_props);
    entry.add_string(EntryField::key, key);
    entry.add_string(EntryField::value, value);
  }
  check_size(bytes.size(), limit);
  return bytes;
}

}  // namespace lockstep::inline v0::onnx
