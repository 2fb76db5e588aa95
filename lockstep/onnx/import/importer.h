// Implements import_network(). Private to the module.
//
// Each tensor of the graph becomes an Array, a Constant or a Function. An Array is the output of a
// layer with the layout of its elements: transposes, reshapes and flattens of the graph change the
// layout only, and Importer::arranged() adds layers that move elements where an operator reads
// another order. So an image is channels last in the network while the graph reads it channels
// first. A Function is an elementwise function of an Array, represented by its values at some
// points. When another operator reads it, it is matched to an activation, so that all forms of a
// GELU are recognized. Operators that form one layer, such as those of attention, are replaced by
// one node beforehand (layer_patterns.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/elementwise/fake_quantize.h"
#include "lockstep/model/network/network.h"
#include "lockstep/onnx/import.h"
#include "lockstep/onnx/import/constant.h"
#include "lockstep/onnx/import/folding.h"
#include "lockstep/onnx/import/layer_patterns.h"
#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// A sequence of axes.
using Axes = std::vector<std::size_t>;

/// The output of a layer, or an input of the network, as a tensor of the graph.
struct Array {
  model::NodeId node = model::kInput;
  model::Shape shape;  ///< in the graph, with kSampleCount once
  /// The layout of a sample: axis k of the layer's output is axis order[k] of an array of the shape
  /// `axes`, which has the elements in the graph's order. `axes` is `shape` without the batch, or
  /// another shape before a reshape. The layer's output may have another shape with the same number
  /// of elements.
  model::Shape axes;
  Axes order;
  /// The axes of the sample that the graph has merged with that of the samples, before and after
  /// it, such as heads: [N * H, T, D].
  model::Shape before = {};
  model::Shape after = {};

  std::size_t batch() const;  ///< the axis of the samples
  bool is_merged() const { return !before.empty() || !after.empty(); }
  model::Shape sample() const;  ///< `shape` without the batch, with the merged axes in its place
  /// The axis of the sample that axis `axis` of `shape` is; of the merged axes the first.
  std::size_t sample_axis(std::size_t axis) const;
};

/// Points at which elementwise functions are compared. The last two expose limits of any size.
inline constexpr std::array<double, 22> kPoints{-6,    -4.3, -3,   -2.2, -1.5,  -1,  -0.7, -0.3,
                                                -0.05, 0,    0.05, 0.3,  0.7,   1,   1.5,  2.2,
                                                3,     4.3,  5.9,  7.5,  -1e30, 1e30};
using Samples = std::array<double, kPoints.size()>;

/// An elementwise function of an array, and its last step.
struct Function {
  Array input;
  Samples samples{};           ///< its values for kPoints
  const Node* node = nullptr;  ///< the last step
  /// The tensors that the last step reads, one, or two for a sum or a product. If no layer computes
  /// the whole function, one computes the step.
  std::vector<std::string> operands = {};
  Samples step{};  ///< with one operand: the values of the step for kPoints
  int depth = 0;   ///< nesting depth of such functions
};

/// What a tensor of the graph is.
using Imported = std::variant<Array, Constant, Function>;

class Importer {
 public:
  Importer(const Model& model, std::string_view where, const ImportOptions& options);

  ImportedNetwork run();

 private:
  using Handler = void (Importer::*)(const Node&);
  struct Operator {
    std::string_view type;
    Handler import;
  };
  static std::span<const Operator> operators();

  // importer.cpp: the graph.
  void index_nodes();
  void find_patterns();
  void find_needed();
  void add_inputs();
  Axes input_order(const Value& value) const;
  model::Shape stated_extents(const Value& value, const Axes& order) const;
  void import_or_note(const Node& node);
  bool is_supported(const Node& node) const;
  void import_node(const Node& node);
  bool fold(const Node& node);
  [[noreturn]] void refuse_all() const;
  void add_outputs();
  std::vector<float> filled(const model::ParameterTable& table);

  // importer.cpp: what handlers read and write.
  [[noreturn]] void refuse(const Node& node, std::string_view expected,
                           std::string_view actual) const;
  bool has_input(const Node& node, std::size_t index) const;
  bool is_used(const Node& node, std::size_t output) const;
  const Imported& imported(const Node& node, const std::string& name);
  /// Whether a tensor is known already, or one node that may directly precede its reader computes
  /// it from constants of the file.
  bool is_computable(const std::string& name);
  const Constant* constant_at(const Node& node, std::size_t index);  // null: not a constant
  /// A constant of floats with its elements; rejects other inputs.
  const Constant& weights_at(const Node& node, std::size_t index);
  /// The integers of an input, or of an attribute (in earlier opsets); nullopt if there are
  /// neither.
  std::optional<std::vector<std::int64_t>> integers_at(const Node& node, std::size_t index,
                                                       const char* attribute);
  Array array_at(const Node& node, std::size_t index);
  /// array_at(), also of arrays with merged axes.
  Array any_array_at(const Node& node, std::size_t index);
  /// array_at(); rejects arrays whose first axis is not the batch.
  Array samples_at(const Node& node, std::size_t index);
  void set(const Node& node, Imported value, std::size_t output = 0);
  /// The only node that reads the first output of `node`; null if there are others.
  const Node* only_reader(const Node& node) const;
  const Node* only_reader(const std::string& tensor) const;

  // importer.cpp: layers.
  template <typename Layer>
  model::NodeId add(const Node& node, Layer layer, std::vector<model::NodeId> inputs,
                    const std::string& name = {}) {
    return add_layer(node, std::make_shared<const Layer>(std::move(layer)), std::move(inputs),
                     name);
  }
  model::NodeId add_layer(const Node& node, std::shared_ptr<const model::Layer> layer,
                          std::vector<model::NodeId> inputs, const std::string& name);
  void import_pattern(const Node& node, const LayerPattern& pattern);
  std::string layer_name(const Node& node, std::size_t weight) const;
  void set_weights(model::NodeId node, const char* parameter, std::vector<float> values);

  // arrangement.cpp
  /// A layer whose output is `array` with its axes in `order`: axis k is axis order[k] of the
  /// sample. Adds layers only if elements must move.
  model::NodeId arranged(const Node& node, Array array, const Axes& order);
  /// `array` in the order of the graph.
  model::NodeId plain(const Node& node, const Array& array);
  /// `array`, an image [C, H, W] or a sequence [C, T], with the channels last.
  model::NodeId channels_last(const Node& node, const Array& array);
  Array with_sample_axes(const Node& node, Array array);
  model::NodeId moved(const Node& node, model::NodeId from, model::Shape shape,
                      std::optional<Axes> dims);

  // import_images.cpp
  void import_convolution(const Node& node);
  void import_transposed_convolution(const Node& node);
  void import_resize(const Node& node);
  void import_pooling(const Node& node);
  void import_global_pooling(const Node& node);
  void import_reduction(const Node& node);
  void import_batch_normalization(const Node& node);
  void import_padding(const Node& node);

  // import_dense.cpp
  void import_gemm(const Node& node);
  void import_product(const Node& node);
  void import_array_product(const Node& node);
  void import_embedding(const Node& node, const Constant& rows);
  void import_layer_normalization(const Node& node);
  void import_group_normalization(const Node& node);
  bool import_decomposed_normalization(const Node& node);
  void add_dense(const Node& node, const Array& input, std::vector<float> kernel,
                 std::int64_t units, std::optional<std::vector<float>> bias,
                 const Node& output_node, std::size_t weight, const std::string& embedding);
  /// The embedding whose rows are the weights, transposed for a MatMul; empty: none.
  std::string embedding_of(const Node& node) const;
  /// The addition of a constant of `units` elements along the last axis after `node`, and nothing
  /// else reads its output; null if there is none.
  const Node* following_bias(const Node& node, std::int64_t units, std::vector<float>& bias);

  // import_functions.cpp
  void import_function(const Node& node);
  void import_combination(const Node& node);
  void import_choice(const Node& node);
  void add_function(const Node& node, const std::string& tensor,
                    const std::function<double(double)>& step);
  void add_positions(const Node& node, std::size_t index, const Constant& rows);
  std::optional<Axes> axes_of(const Array& input, const Constant& constant) const;
  Array scaled(const Node& node, const Array& input, const Axes& axes, std::vector<float> scales,
               std::vector<float> offsets, bool trainable, const std::string& name);
  void add_scale(const Node& node, std::size_t index, const Constant& constant);
  void import_prelu(const Node& node);
  void import_softmax(const Node& node);
  void import_dropout(const Node& node);
  Array materialized(const Node& node, const std::string& tensor);
  std::optional<Function> as_function(const Node& node, const std::string& tensor);
  Array combined(const Node& node, Array a, Array b);

  // import_quantization.cpp
  TensorType quantized_type(const Node& node) const;
  model::FakeQuantizeFunction quantization(const Node& node);
  void import_quantize(const Node& node);
  void import_dequantize(const Node& node);

  // import_shapes.cpp
  void import_identity(const Node& node);
  void import_cast(const Node& node);
  void import_shape(const Node& node);
  void import_flatten(const Node& node);
  void import_reshape(const Node& node);
  void import_squeeze(const Node& node);
  void import_unsqueeze(const Node& node);
  void import_transpose(const Node& node);
  void import_concatenation(const Node& node);
  void import_gather(const Node& node);
  void import_slice(const Node& node);
  Array repeated(const Node& node, const Array& array, std::size_t axis, const Constant& constant);
  Array cropped(const Node& node, const Array& array, std::size_t axis, std::int64_t begin,
                std::int64_t end);
  void reshape_to(const Node& node, Array array, model::Shape shape);

  void import_split(const Node& node);

  // import_recurrent.cpp
  void import_recurrent(const Node& node);
  void check_recurrent_options(const Node& node, std::int64_t positions);
  bool has_two_biases(const Node& node);

  const Model& model_;
  /// The nodes of the graph; the last node of a pattern is replaced by LayerPattern::node.
  std::vector<const Node*> nodes_;
  std::unordered_map<const Node*, const LayerPattern*> patterns_;
  std::deque<LayerPattern> found_patterns_;
  std::string where_;
  ImportOptions options_;
  model::Network network_;
  ConstantFolder folder_;
  std::size_t weight_elements_ = 0;
  std::optional<std::int64_t> samples_;  ///< if the file states a number of samples
  std::unordered_map<std::string, Imported> tensors_;
  std::unordered_map<std::string, const Tensor*> initializers_;
  std::unordered_map<std::string, std::size_t> producers_;
  std::unordered_map<std::string, std::vector<const Node*>> readers_;  ///< needed nodes by input
  std::set<std::string, std::less<>> outputs_;
  std::vector<bool> needed_;
  /// The quantization of the outputs of QuantizeLinear, which tensors_ has as floats.
  std::unordered_map<std::string, model::FakeQuantizeFunction> quantized_;
  std::set<const Node*> done_;  ///< imported with an earlier node
  std::vector<ErrorMessage> refusals_;
  std::set<std::string, std::less<>> unknown_;  ///< tensors that depend on refused nodes
  std::map<std::tuple<model::NodeId, model::Shape, Axes>, model::NodeId> moves_;
  std::set<std::string, std::less<>> names_;  ///< names of layers and inputs
  std::map<std::string, int> numbers_;        ///< last suffix that made a name unique, by name
  std::map<std::string, std::vector<float>, std::less<>> weights_;
  std::unordered_map<std::string, std::string>
      embeddings_;  ///< layer names, by the names of their weights
};

}  // namespace lockstep::inline v0::onnx
