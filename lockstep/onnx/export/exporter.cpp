#include "lockstep/onnx/export/exporter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/network/fold_normalizations.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/onnx/export/int8_layers.h"

namespace lockstep::inline v0::onnx {
namespace {

using model::Shape;

constexpr const char* kBatchName = "batch";
constexpr const char* kPreprocessing = "preprocessing";

/// The number of positions of an array [..., C].
std::int64_t positions_of(const Shape& shape) {
  return model::element_count(Shape(shape.begin(), shape.end() - 1));
}

/// Whether the channels may be first or last without moving elements.
bool is_same_in_any_order(const Shape& shape) {
  return shape.size() < 2 || shape.back() == 1 || positions_of(shape) == 1;
}

/// [batch, shape...]
std::vector<Extent> with_batch(const Shape& shape) {
  std::vector<Extent> extents{kBatchName};
  extents.insert(extents.end(), shape.begin(), shape.end());
  return extents;
}

/// [C, ...] of [..., C].
Shape to_front(const Shape& shape) {
  Shape front{shape.back()};
  front.insert(front.end(), shape.begin(), shape.end() - 1);
  return front;
}

/// The shape of a Reshape that keeps the batch: 0 copies the first extent.
std::vector<std::int64_t> with_batch_zero(const Shape& shape) {
  std::vector<std::int64_t> extents{0};
  extents.insert(extents.end(), shape.begin(), shape.end());
  return extents;
}

ExportLayer find_row(std::string_view type) {
  for (const std::span<const LayerRow> rows : {array_layers(), sequence_layers()})
    if (const auto row = std::ranges::find(rows, type, &LayerRow::type); row != rows.end())
      return row->write;
  return nullptr;
}

}  // namespace

std::vector<float> channels_to_front(std::span<const float> values, std::int64_t outer,
                                     std::int64_t spatial, std::int64_t channels) {
  LOCKSTEP_CHECK_OP(static_cast<std::int64_t>(values.size()), ==, outer * spatial * channels);
  std::vector<float> moved(values.size());
  for (std::int64_t o = 0; o < outer; ++o) {
    const float* const from = values.data() + o * spatial * channels;
    float* const to = moved.data() + o * spatial * channels;
    for (std::int64_t s = 0; s < spatial; ++s)
      for (std::int64_t c = 0; c < channels; ++c) to[c * spatial + s] = from[s * channels + c];
  }
  return moved;
}

// ---- LayerExport

std::string LayerExport::name(std::string_view part) const {
  return fmt::format("{}/{}", node.name, part);
}

std::string LayerExport::add(std::string op, std::vector<std::string> from,
                             std::vector<Attribute> attributes, std::string_view part) const {
  return graph().add(std::move(op), std::move(from), part.empty() ? node.name : name(part),
                     std::move(attributes));
}

const model::ParameterInfo* LayerExport::find(std::string_view wanted, bool is_buffer) const {
  const model::ParameterTable& table =
      is_buffer ? exporter.network().buffers() : exporter.network().parameters();
  return table.find(name(wanted));
}

std::span<const float> LayerExport::values(std::string_view wanted, bool is_buffer) const {
  const model::ParameterInfo* const entry = find(wanted, is_buffer);
  LOCKSTEP_CHECK(entry != nullptr);
  return exporter.values(*entry, is_buffer);
}

bool LayerExport::is_int8() const { return exporter.options().int8_layers.contains(node.name); }

Operand LayerExport::like_input(std::string value) const {
  return {.name = std::move(value),
          .shape = shape(),
          .channels_first = input().channels_first,
          .flattened = input().flattened};
}

void LayerExport::refuse(std::string_view expected, std::string_view actual) const {
  throw Error(ErrorCategory::input, fmt::format("{} ({})", node.name, type), expected, actual);
}

// ---- Exporter

Exporter::Exporter(const model::Network& network, const NetworkArrays& arrays,
                   const ExportOptions& options)
    : network_(network),
      arrays_(arrays),
      options_(options),
      graph_(options.weights == WeightStorage::float16),
      results_(network.nodes().size()) {
  LOCKSTEP_CHECK_OP(arrays.parameters.size(), ==, network.parameters().flat_size());
  LOCKSTEP_CHECK_OP(arrays.buffers.size(), ==, network.buffers().flat_size());
}

std::span<const float> Exporter::values(const model::ParameterInfo& entry, bool is_buffer) const {
  return model::ParameterTable::slice(is_buffer ? arrays_.buffers : arrays_.parameters, entry);
}

std::string Exporter::shared_parameter(const model::ParameterInfo& entry) {
  return shared_value("parameter " + entry.name, [&] {
    return graph_.weights(entry.name, entry.shape, values(entry, false));
  });
}

std::vector<bool> Exporter::needed() const {
  std::vector<bool> needed(network_.nodes().size());
  for (const model::NetworkOutput& output : network_.outputs()) needed[output.node] = true;
  for (std::size_t i = needed.size(); i-- > 0;)
    for (const model::NodeId input : network_.nodes()[i].inputs)
      if (needed[i] && !model::is_input(input)) needed[input] = true;
  return needed;
}

void Exporter::check_int8_layers() const {
  const auto nodes = network_.nodes();
  for (const std::string& name : options_.int8_layers) {
    const auto found = std::ranges::find(nodes, name, &model::Node::name);
    const std::string_view expected =
        "expected a layer of convolutions or a dense one after a "
        "fake_quantize, to store its kernel as int8";
    if (found == nodes.end())
      throw Error(ErrorCategory::input, name, expected, "the network has no such layer");
    const auto node = static_cast<model::NodeId>(found - nodes.begin());
    if (const std::string_view reason = why_not_int8(network_, node); !reason.empty())
      throw Error(ErrorCategory::input, name, expected, fmt::format("got {}", reason));
    for (const std::size_t index : found->parameters) {
      const model::ParameterInfo& entry = network_.parameters().entries()[index];
      if (!std::ranges::all_of(values(entry, false), [](float x) { return std::isfinite(x); }))
        throw Error(ErrorCategory::input, entry.name, "expected finite numbers to store as int8",
                    "got others");
    }
  }
}

Operand Exporter::channels_last(const Operand& operand) {
  if (!operand.channels_first) return operand;
  Operand result{.name = {}, .shape = operand.shape};
  result.name = shared_value("last " + operand.name, [&] {
    const bool is_flat = !operand.flattened.empty();
    const Shape& image = is_flat ? operand.flattened : operand.shape;
    const std::string name = operand.name + "/channels_last";
    if (is_same_in_any_order(image))
      return graph_.add("Reshape", {operand.name, graph_.integers(with_batch_zero(operand.shape))},
                        name);
    std::string value = operand.name;
    if (is_flat)
      value = graph_.add(
          "Reshape", {value, graph_.integers(with_batch_zero({image.back(), positions_of(image)}))},
          operand.name + "/channels");
    std::vector<std::int64_t> axes{0};
    const auto rank = is_flat ? std::int64_t{2} : static_cast<std::int64_t>(image.size());
    for (std::int64_t axis = 2; axis <= rank; ++axis) axes.push_back(axis);
    axes.push_back(1);
    value = graph_.add("Transpose", {value}, name, {{"perm", axes}});
    return is_flat ? graph_.add("Reshape", {value, graph_.integers(with_batch_zero(operand.shape))},
                                operand.name + "/flat")
                   : value;
  });
  return result;
}

Operand Exporter::channels_first(const Operand& operand) {
  if (operand.channels_first) return operand;
  Operand result{.name = {}, .shape = operand.shape, .channels_first = true};
  result.name = shared_value("first " + operand.name, [&] {
    const std::string name = operand.name + "/channels_first";
    if (is_same_in_any_order(operand.shape))
      return graph_.add("Reshape",
                        {operand.name, graph_.integers(with_batch_zero(to_front(operand.shape)))},
                        name);
    std::vector<std::int64_t> axes{0, static_cast<std::int64_t>(operand.shape.size())};
    for (std::int64_t axis = 1; axis < axes[1]; ++axis) axes.push_back(axis);
    return graph_.add("Transpose", {operand.name}, name, {{"perm", axes}});
  });
  return result;
}

/// Makes an input of pixels.
void Exporter::normalize(const model::NetworkInput& input, Operand& operand, Value& value) {
  const ChannelNormalization& pixels = *options_.preprocessing.pixels;
  const auto channels = static_cast<std::int64_t>(pixels.channels);
  if (input.shape.size() != 3 || (channels > 0 && input.shape.back() != channels))
    throw Error(ErrorCategory::input, kPreprocessing,
                channels > 0 ? fmt::format("expected images of {} channels to normalize", channels)
                             : "expected images",
                fmt::format("got the input {} {}", input.name, model::to_string(input.shape)));
  value.type = TensorType::uint8;
  operand.name = graph_.add("Cast", {operand.name}, operand.name + "/float",
                            {{"to", static_cast<std::int64_t>(TensorType::float32)}});
  operand.name = graph_.add("Div", {operand.name, graph_.number(255)}, input.name + "/unit_scale");
  if (channels == 0) return;
  const auto constants = [&](const char* name, const auto& array) {
    return graph_.floats(fmt::format("{}/{}", input.name, name), {channels, 1, 1},
                         std::span<const float>(array).first(static_cast<std::size_t>(channels)));
  };
  operand.name =
      graph_.add("Sub", {operand.name, constants("mean", pixels.mean)}, input.name + "/centered");
  operand.name = graph_.add("Div", {operand.name, constants("deviation", pixels.deviation)},
                            input.name + "/normalized");
}

/// An input that is computed from columns of a table; without a name if it is none.
Operand Exporter::add_table_input(const model::NetworkInput& input, bool is_first_float) {
  Operand operand{.name = {}, .shape = input.shape};
  if (input.type == ElementType::int32) {
    operand.name = table_->index(input.name).value_or("");
  } else if (is_first_float) {
    if (input.shape != Shape{table_->width()})
      throw Error(ErrorCategory::input, kPreprocessing,
                  fmt::format("expected an input of the {} features of the table", table_->width()),
                  fmt::format("got the input {} {}", input.name, model::to_string(input.shape)));
    operand.name = table_->features(input.name);
  }
  return operand;
}

Operand Exporter::add_input(const model::NetworkInput& input) {
  const auto first =
      std::ranges::find(network_.inputs(), ElementType::float32, &model::NetworkInput::type);
  const bool is_first_float = first != network_.inputs().end() && &*first == &input;
  if (table_)
    if (Operand operand = add_table_input(input, is_first_float); !operand.name.empty())
      return operand;
  if (text_)
    if (const auto value = text_->value(input)) return {.name = *value, .shape = input.shape};
  const bool is_image = input.shape.size() == 3 && input.type == ElementType::float32;
  Operand operand{
      .name = graph_.unique_name(input.name), .shape = input.shape, .channels_first = is_image};
  Value value{.name = operand.name,
              .type = input.type == ElementType::int32 ? TensorType::int32 : TensorType::float32,
              .shape = with_batch(is_image ? to_front(input.shape) : input.shape)};
  if (is_first_float && options_.preprocessing.pixels) normalize(input, operand, value);
  graph_.graph.inputs.push_back(std::move(value));
  return operand;
}

Graph Exporter::run() {
  const bool has_floats = std::ranges::any_of(
      network_.inputs(), [](const auto& input) { return input.type == ElementType::float32; });
  if (options_.preprocessing.pixels && !has_floats)
    throw Error(ErrorCategory::input, kPreprocessing, "expected an input of float32",
                fmt::format("got none in {}", network_.name()));
  if (options_.preprocessing.table) table_.emplace(graph_, *options_.preprocessing.table);
  if (options_.preprocessing.text) text_.emplace(graph_, *options_.preprocessing.text);
  graph_.graph.name = network_.name();
  check_int8_layers();
  for (const model::NetworkInput& input : network_.inputs()) inputs_.push_back(add_input(input));
  std::vector<std::string> names;
  for (const model::NetworkOutput& output : network_.outputs())
    names.push_back(graph_.unique_name(output.name));
  const std::vector<bool> needed = this->needed();
  for (std::size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    const model::Node& node = network_.nodes()[i];
    const std::string_view type = model::type_of(*node.layer);
    std::vector<Operand> inputs;
    for (const model::NodeId input : node.inputs)
      inputs.push_back(model::is_input(input) ? inputs_[model::input_index(input)]
                                              : results_[input]);
    const LayerExport layer{.exporter = *this,
                            .id = static_cast<model::NodeId>(i),
                            .node = node,
                            .type = type,
                            .inputs = inputs};
    const ExportLayer write = find_row(type);
    if (write == nullptr)
      throw Error(ErrorCategory::input, fmt::format("{} ({})", node.name, node.layer->kind()),
                  "expected a layer of Lockstep that ONNX has operators for",
                  type.empty() ? "got a user-defined layer or one of a TorchScript file"
                               : fmt::format("got {}", type));
    results_[i] = write(layer);
    LOCKSTEP_CHECK(results_[i].shape == node.output_shape);
  }
  for (std::size_t k = 0; k < names.size(); ++k) {
    const Operand& result = results_[network_.outputs()[k].node];
    const bool is_image = result.shape.size() == 3;
    const Operand output = is_image ? channels_first(result) : channels_last(result);
    graph_.output(output.name, names[k], TensorType::float32,
                  with_batch(is_image ? to_front(output.shape) : output.shape));
  }
  return std::move(graph_.graph);
}

Model export_network(const model::Network& network, const NetworkArrays& arrays,
                     const ExportOptions& options) {
  network.check_complete();
  const auto written = [&](const model::Network& exported, const NetworkArrays& weights) -> Model {
    return {.producer = "lockstep",
            .producer_version = options.producer_version,
            .graph = Exporter(exported, weights, options).run(),
            .metadata = options.metadata};
  };
  if (!options.fold) return written(network, arrays);
  const model::FoldedNetwork folded =
      model::fold_normalizations(network, arrays.parameters, arrays.buffers);
  return written(folded.network, {.parameters = folded.parameters, .buffers = folded.buffers});
}

}  // namespace lockstep::inline v0::onnx
