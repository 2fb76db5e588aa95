#include "lockstep/onnx/read_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file_kind.h"
#include "lockstep/base/file/input_file.h"

namespace lockstep::inline v0::onnx {
namespace {

using protozero::pbf_reader;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

constexpr std::size_t kMaxBytes = (std::size_t{1} << 31) - 1;  // limit of a message
constexpr std::size_t kMaxNodes = std::size_t{1} << 16;
/// Maximum number of inputs, outputs, attributes, dimensions and list elements, each of which uses
/// far more memory than its bytes in the file.
constexpr std::size_t kMaxItems = std::size_t{1} << 20;
constexpr std::size_t kMaxRank = 16;

constexpr auto kText = pbf_wire_type::length_delimited;
constexpr auto kInteger = pbf_wire_type::varint;
constexpr auto kFloat = pbf_wire_type::fixed32;

/// AttributeProto.AttributeType.
enum class AttributeKind : std::int32_t {
  none = 0,
  number = 1,
  integer = 2,
  text = 3,
  tensor = 4,
  graph = 5,
  numbers = 6,
  integers = 7,
  texts = 8,
  graphs = 10,
};

std::string string_of(protozero::data_view view) { return {view.data(), view.size()}; }

/// Bytes of an element; 0 for types that are not read.
std::size_t element_bytes(std::int32_t type) {
  switch (static_cast<TensorType>(type)) {
    case TensorType::float32:
    case TensorType::int32:
      return 4;
    case TensorType::uint8:
    case TensorType::int8:
    case TensorType::boolean:
      return 1;
    case TensorType::int64:
    case TensorType::float64:
      return 8;
    case TensorType::float16:
    case TensorType::bfloat16:
      return 2;
    case TensorType::string:
      return 0;
  }
  return 0;
}

/// Appends the low bytes of `value`.
template <typename Value>
void append(std::string& bytes, Value value, std::size_t count = sizeof(Value)) {
  char memory[sizeof(Value)];
  std::memcpy(memory, &value, sizeof(Value));
  bytes.append(memory, count);
}

class ModelReader {
 public:
  explicit ModelReader(std::string_view where) : where_(where) {}

  Model read(std::string_view bytes) {
    if (bytes.size() > kMaxBytes)
      fail("expected a file of at most 2 GiB", fmt::format("got {} bytes", bytes.size()));
    if (bytes.empty()) fail("expected a model of ONNX", "the file is empty");
    try {
      return read_model(pbf_reader(protozero::data_view(bytes.data(), bytes.size())));
    } catch (const protozero::exception& error) {
      fail("expected a model of ONNX",
           fmt::format("the file is damaged or of another format ({})", error.what()));
    }
  }

 private:
  [[noreturn]] void fail(std::string_view expected, std::string_view actual) const {
    throw Error(ErrorCategory::input, where_, expected, actual);
  }

  void count(std::size_t items = 1) {
    items_ += items;
    if (items_ > kMaxItems)
      fail(fmt::format("expected at most {} names, attributes and numbers outside of tensors",
                       kMaxItems),
           "the file has more");
  }

  Model read_model(pbf_reader message) {
    Model model;
    model.ir_version = 0;
    model.opset = 0;
    bool has_graph = false;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kInteger):
          model.ir_version = message.get_int64();
          break;
        case tag_and_type(2, kText):
          model.producer = string_of(message.get_view());
          break;
        case tag_and_type(3, kText):
          model.producer_version = string_of(message.get_view());
          break;
        case tag_and_type(7, kText):
          if (std::exchange(has_graph, true)) fail("expected one graph", "the file has several");
          model.graph = read_graph(message.get_message());
          break;
        case tag_and_type(8, kText):
          read_opset(message.get_message(), model);
          break;
        case tag_and_type(14, kText):
          read_metadata(message.get_message(), model);
          break;
        default:
          message.skip();
      }
    if (!has_graph || model.ir_version <= 0)
      fail("expected a model of ONNX",
           fmt::format("the file has {}", has_graph ? "no version" : "no graph"));
    if (model.opset <= 0)
      fail("expected a version of the operators of ONNX", "the file states none");
    return model;
  }

  void read_opset(pbf_reader message, Model& model) {
    std::string domain;
    std::int64_t version = 0;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kText):
          domain = string_of(message.get_view());
          break;
        case tag_and_type(2, kInteger):
          version = message.get_int64();
          break;
        default:
          message.skip();
      }
    if (domain.empty() || domain == "ai.onnx") model.opset = version;
  }

  void read_metadata(pbf_reader message, Model& model) {
    std::string key;
    std::string value;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kText):
          key = string_of(message.get_view());
          break;
        case tag_and_type(2, kText):
          value = string_of(message.get_view());
          break;
        default:
          message.skip();
      }
    count();
    model.metadata[key] = value;
  }

  Graph read_graph(pbf_reader message) {
    Graph graph;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kText):
          if (graph.nodes.size() == kMaxNodes)
            fail(fmt::format("expected at most {} nodes", kMaxNodes), "the graph has more");
          graph.nodes.push_back(read_node(message.get_message()));
          break;
        case tag_and_type(2, kText):
          graph.name = string_of(message.get_view());
          break;
        case tag_and_type(5, kText):
          count();
          graph.initializers.push_back(read_tensor(message.get_message(), ""));
          break;
        case tag_and_type(11, kText):
          graph.inputs.push_back(read_value(message.get_message()));
          break;
        case tag_and_type(12, kText):
          graph.outputs.push_back(read_value(message.get_message()));
          break;
        case tag_and_type(15, kText):
          fail("expected dense weights", "the graph has a sparse initializer");
        default:
          message.skip();
      }
    // Until version 4 of the format, initializers were inputs as well.
    std::set<std::string_view> initialized;
    for (const Tensor& tensor : graph.initializers) initialized.insert(tensor.name);
    std::erase_if(graph.inputs,
                  [&](const Value& value) { return initialized.contains(value.name); });
    return graph;
  }

  Node read_node(pbf_reader message) {
    Node node;
    std::vector<protozero::data_view> attributes;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kText):
          count();
          node.inputs.push_back(string_of(message.get_view()));
          break;
        case tag_and_type(2, kText):
          count();
          node.outputs.push_back(string_of(message.get_view()));
          break;
        case tag_and_type(3, kText):
          node.name = string_of(message.get_view());
          break;
        case tag_and_type(4, kText):
          node.type = string_of(message.get_view());
          break;
        case tag_and_type(5, kText):
          count();
          attributes.push_back(message.get_view());
          break;
        case tag_and_type(7, kText):
          node.domain = string_of(message.get_view());
          break;
        default:
          message.skip();
      }
    if (node.domain == "ai.onnx") node.domain.clear();
    // Read last, so that messages can name the node.
    for (const protozero::data_view& view : attributes)
      node.attributes.push_back(read_attribute(pbf_reader(view), node));
    return node;
  }

  Attribute read_attribute(pbf_reader message, const Node& node) {
    Attribute attribute;
    auto kind = AttributeKind::none;   // the field "type"
    auto found = AttributeKind::none;  // kind of the last value
    float number = 0;
    std::int64_t integer = 0;
    std::string text;
    std::optional<protozero::data_view> tensor;
    std::vector<float> numbers;
    std::vector<std::int64_t> integers;
    std::vector<std::string> texts;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kText):
          attribute.name = string_of(message.get_view());
          break;
        case tag_and_type(2, kFloat):
          number = message.get_float();
          found = AttributeKind::number;
          break;
        case tag_and_type(3, kInteger):
          integer = message.get_int64();
          found = AttributeKind::integer;
          break;
        case tag_and_type(4, kText):
          text = string_of(message.get_view());
          found = AttributeKind::text;
          break;
        case tag_and_type(5, kText):
          tensor = message.get_view();
          found = AttributeKind::tensor;
          break;
        case tag_and_type(6, kText):
        case tag_and_type(11, kText):
          fail("expected a graph without control flow",
               fmt::format("node \"{}\" ({}) contains a graph", node.name, node.type));
        case tag_and_type(7, kFloat):
          count();
          numbers.push_back(message.get_float());
          found = AttributeKind::numbers;
          break;
        case tag_and_type(7, kText):
          for (const float one : message.get_packed_float()) {
            count();
            numbers.push_back(one);
          }
          found = AttributeKind::numbers;
          break;
        case tag_and_type(8, kInteger):
          count();
          integers.push_back(message.get_int64());
          found = AttributeKind::integers;
          break;
        case tag_and_type(8, kText):
          for (const std::int64_t one : message.get_packed_int64()) {
            count();
            integers.push_back(one);
          }
          found = AttributeKind::integers;
          break;
        case tag_and_type(9, kText):
          count();
          texts.push_back(string_of(message.get_view()));
          found = AttributeKind::texts;
          break;
        case tag_and_type(20, kInteger):
          kind = static_cast<AttributeKind>(message.get_enum());
          break;
        default:
          message.skip();
      }
    if (kind == AttributeKind::none) kind = found;
    switch (kind) {
      case AttributeKind::number:
        attribute.value = number;
        return attribute;
      case AttributeKind::integer:
        attribute.value = integer;
        return attribute;
      case AttributeKind::text:
        attribute.value = std::move(text);
        return attribute;
      case AttributeKind::tensor:
        if (!tensor) break;
        attribute.value = read_tensor(pbf_reader(*tensor), node.name);
        return attribute;
      case AttributeKind::numbers:
        attribute.value = std::move(numbers);
        return attribute;
      case AttributeKind::integers:
        attribute.value = std::move(integers);
        return attribute;
      case AttributeKind::texts:
        attribute.value = std::move(texts);
        return attribute;
      default:
        break;
    }
    fail("expected attributes that are numbers, texts, lists of them or tensors",
         fmt::format("\"{}\" of node \"{}\" ({}) is of the type {}", attribute.name, node.name,
                     node.type, static_cast<std::int32_t>(kind)));
  }

  /// `node`: the node whose attribute it is; empty for an initializer.
  Tensor read_tensor(const pbf_reader& message, const std::string& node) {
    Tensor tensor;
    std::int32_t type = 0;
    std::string external;
    bool is_external = false;
    for (pbf_reader head = message; head.next();) switch (head.tag_and_type()) {
        case tag_and_type(1, kInteger):
          if (tensor.shape.size() > kMaxRank) tensor.shape.pop_back();
          tensor.shape.push_back(head.get_int64());
          break;
        case tag_and_type(1, kText):
          for (const std::int64_t extent : head.get_packed_int64()) {
            if (tensor.shape.size() > kMaxRank) break;
            tensor.shape.push_back(extent);
          }
          break;
        case tag_and_type(2, kInteger):
          type = head.get_enum();
          break;
        case tag_and_type(8, kText):
          tensor.name = string_of(head.get_view());
          break;
        case tag_and_type(13, kText):
          is_external = true;
          external = external_file(head.get_message(), std::move(external));
          break;
        case tag_and_type(14, kInteger):
          if (head.get_enum() == 1) is_external = true;
          break;
        default:
          head.skip();
      }
    const std::string label =
        node.empty() ? fmt::format("\"{}\"", tensor.name) : fmt::format("node \"{}\"", node);
    if (is_external)
      fail(
          "expected all weights in the file; torch.onnx.export(…, external_data=False) or "
          "onnx.save(model, FILE) writes it",
          fmt::format("the values of {} are in another file{}", label,
                      external.empty() ? "" : fmt::format(", \"{}\"", external)));
    const std::size_t size = element_bytes(type);
    if (size == 0)
      fail(
          "expected tensors of float32, float16, bfloat16, float64, int64, int32, int8, uint8 or "
          "bool",
          fmt::format("the type of {} is {}", label, type));
    tensor.type = static_cast<TensorType>(type);
    read_elements(message, tensor, elements(tensor, label), size, label);
    return tensor;
  }

  static std::string external_file(pbf_reader entry, std::string before) {
    std::string key;
    std::string value;
    while (entry.next()) switch (entry.tag_and_type()) {
        case tag_and_type(1, kText):
          key = string_of(entry.get_view());
          break;
        case tag_and_type(2, kText):
          value = string_of(entry.get_view());
          break;
        default:
          entry.skip();
      }
    return key == "location" ? value : before;
  }

  std::size_t elements(const Tensor& tensor, const std::string& label) const {
    if (tensor.shape.size() > kMaxRank)
      fail(fmt::format("expected tensors of at most {} dimensions", kMaxRank),
           fmt::format("{} has more", label));
    std::size_t total = 1;
    for (const std::int64_t extent : tensor.shape) {
      if (extent < 0 || static_cast<std::size_t>(extent) > kMaxBytes)
        fail("expected tensors with extents from 0 to 2^31 - 1",
             fmt::format("one of {} is {}", label, extent));
      total *= static_cast<std::size_t>(extent);
      if (total > kMaxBytes)
        fail("expected tensors of at most 2 GiB", fmt::format("{} has more", label));
    }
    return total;
  }

  /// Reads the only field that has values into tensor.bytes, `total` elements of `size` bytes.
  void read_elements(pbf_reader message, Tensor& tensor, std::size_t total, std::size_t size,
                     const std::string& label) const {
    const std::size_t bytes = total * size;
    const auto refuse_count = [&](std::size_t got) {
      fail(fmt::format("expected {} bytes of values for {}", bytes, label),
           fmt::format("got {}{}", got, got > bytes ? " or more" : ""));
    };
    const auto add = [&](auto value, std::size_t kept) {
      if (tensor.bytes.size() + kept > bytes) refuse_count(tensor.bytes.size() + kept);
      append(tensor.bytes, value, kept);
    };
    const auto add_all = [&](const auto& values, std::size_t kept) {
      for (const auto value : values) add(value, kept);
    };
    const TensorType type = tensor.type;
    const bool in_floats = type == TensorType::float32;
    const bool in_doubles = type == TensorType::float64;
    const bool in_int64 = type == TensorType::int64;
    const bool in_int32 = !in_floats && !in_doubles && !in_int64;
    const auto require = [&](bool is_right) {
      if (!is_right)
        fail(fmt::format("expected the values of {} in the field of its type", label),
             fmt::format("they are in another one, and its type is {}",
                         static_cast<std::int32_t>(type)));
    };
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(9, kText): {
          const protozero::data_view raw = message.get_view();
          if (!tensor.bytes.empty() || raw.size() != bytes)
            refuse_count(raw.size() + tensor.bytes.size());
          tensor.bytes.assign(raw.data(), raw.size());
          break;
        }
        case tag_and_type(4, kFloat):
          require(in_floats);
          add(message.get_float(), size);
          break;
        case tag_and_type(4, kText):
          require(in_floats);
          add_all(message.get_packed_float(), size);
          break;
        case tag_and_type(5, kInteger):
          require(in_int32);
          add(message.get_int32(), size);
          break;
        case tag_and_type(5, kText):
          require(in_int32);
          add_all(message.get_packed_int32(), size);
          break;
        case tag_and_type(7, kInteger):
          require(in_int64);
          add(message.get_int64(), size);
          break;
        case tag_and_type(7, kText):
          require(in_int64);
          add_all(message.get_packed_int64(), size);
          break;
        case tag_and_type(10, pbf_wire_type::fixed64):
          require(in_doubles);
          add(message.get_double(), size);
          break;
        case tag_and_type(10, kText):
          require(in_doubles);
          add_all(message.get_packed_double(), size);
          break;
        default:
          message.skip();
      }
    if (tensor.bytes.size() != bytes) refuse_count(tensor.bytes.size());
  }

  Value read_value(pbf_reader message) {
    Value value;
    count();
    bool has_type = false;
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kText):
          value.name = string_of(message.get_view());
          break;
        case tag_and_type(2, kText):
          for (pbf_reader type = message.get_message(); type.next();)
            if (type.tag_and_type() == tag_and_type(1, kText)) {
              has_type = true;
              read_type(type.get_message(), value);
            } else {
              type.skip();
            }
          break;
        default:
          message.skip();
      }
    if (!has_type)
      fail("expected tensors as inputs and outputs of the graph",
           fmt::format("\"{}\" is none, or its type is not stated", value.name));
    return value;
  }

  void read_type(pbf_reader message, Value& value) {
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kInteger):
          value.type = static_cast<TensorType>(message.get_enum());
          break;
        case tag_and_type(2, kText):
          value.shape.clear();
          for (pbf_reader shape = message.get_message(); shape.next();)
            if (shape.tag_and_type() == tag_and_type(1, kText)) {
              count();
              value.shape.push_back(read_extent(shape.get_message()));
            } else {
              shape.skip();
            }
          break;
        default:
          message.skip();
      }
  }

  static Extent read_extent(pbf_reader message) {
    Extent extent = std::string();
    while (message.next()) switch (message.tag_and_type()) {
        case tag_and_type(1, kInteger):
          extent = message.get_int64();
          break;
        case tag_and_type(2, kText):
          extent = string_of(message.get_view());
          break;
        default:
          message.skip();
      }
    return extent;
  }

  std::string where_;
  std::size_t items_ = 0;
};

}  // namespace

Model read_model(std::string_view bytes, std::string_view where) {
  return ModelReader(where).read(bytes);
}

Model read_model_file(const std::filesystem::path& file) {
  const InputFile input(file, ErrorCategory::input);
  const auto size = static_cast<std::size_t>(input.stamp().size);
  if (size > kMaxBytes)
    throw Error(ErrorCategory::input, file.string(), "expected a file of at most 2 GiB",
                fmt::format("got {} bytes", size));
  std::string bytes(size, '\0');
  bytes.resize(input.read_at(0, bytes.data(), size));
  const bool has_version = bytes.starts_with('\x08');  // field 1 of ModelProto
  if (const FileKind kind = file_kind(bytes); kind.is_known() && !has_version)
    refuse_kind(file, kind, "expected a model of ONNX", ErrorCategory::input);
  return read_model(bytes, file.string());
}

}  // namespace lockstep::inline v0::onnx
