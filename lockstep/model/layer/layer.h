// The layer interface: a description (build), and the operation that a plan runs (compile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/tensor/parameters.h"
#include "lockstep/model/tensor/tensor.h"

namespace lockstep::inline v0::model {

class Backend;
class JsonObject;
class StepProfile;
enum class Part;

/// What the data set determines about a model that is trained on it.
struct DataShape {
  std::optional<Shape> input;  ///< shape of one sample; used if the description has no "input"
  std::optional<std::int64_t> classes;  ///< replaces "classes" in a layer with "units": "classes"
};

/// Parameter 0 of an earlier layer, which one later layer may use as well.
struct SharedParameter {
  std::string owner;  ///< name of the layer that declared it
  Shape shape;        ///< shape of the array
};

/// What a layer reads and declares while the network is built.
class BuildContext {
 public:
  /// For the layer `layer` of kind `kind`; `inputs` are the shapes of its inputs, without the
  /// batch. `shared` is what shared_parameter() finds.
  BuildContext(std::string layer, std::string kind, std::vector<Shape> inputs,
               std::vector<SharedParameter> shared = {});

  /// Shapes of the layer's inputs, without the batch.
  const std::vector<Shape>& inputs() const { return inputs_; }
  /// The only input; refuses if there are several.
  const Shape& input() const;
  /// The only input as [..., features]; refuses a number.
  const Shape& row_input() const;
  /// The only input as [H, W, C]; refuses other ranks.
  const Shape& image_input() const;
  /// `output`; refuses extents of 2^31 or more, which only an invalid description has.
  Shape within_limits(Shape output) const;

  /// Makes parameter 0 of the earlier layer `owner`, which has Traits::shares_parameter, parameter
  /// 0 of this layer, too: it precedes those that this layer declares. Returns its shape. Refuses
  /// other layers, and one whose parameter a layer already shares.
  const Shape& shared_parameter(std::string_view owner);
  /// N(0, stddev^2), or `otherwise` if `stddev` is 0. Refuses invalid standard deviations.
  Initializer normal_or(float stddev, Initializer otherwise) const;
  /// Declares a trainable array. Its full name is "LAYER/NAME".
  void parameter(std::string_view name, Shape shape, Initializer initializer, bool decay = true);
  /// Declares an array that is stored but not trained, such as a moving mean.
  void buffer(std::string_view name, Shape shape, float initial);
  /// Declares a buffer with other initial values than a constant.
  void buffer(std::string_view name, Shape shape, Initializer initializer);

  /// Throws Error (input) `[layer (kind)] expected …, got …`.
  [[noreturn]] void refuse(std::string_view expected, std::string_view actual) const;

  /// The layer whose parameter this one shares; empty if there is none.
  const std::string& owner() const { return owner_; }
  /// Moves out the declared trainable arrays, in order. Called once, by the network.
  std::vector<ParameterInfo> release_parameters() { return std::move(parameters_); }
  /// Moves out the declared buffers, in order. Called once, by the network.
  std::vector<ParameterInfo> release_buffers() { return std::move(buffers_); }

 private:
  std::string layer_;
  std::string kind_;
  std::vector<Shape> inputs_;
  std::vector<SharedParameter> shared_;
  std::string owner_;
  std::vector<ParameterInfo> parameters_;
  std::vector<ParameterInfo> buffers_;
};

/// Inputs of random layers in one pass; see StepContext.
struct PassContext {
  bool training = false;           ///< false in evaluation and prediction
  std::uint64_t seed = 1;          ///< seed of the run
  std::int64_t step = 0;           ///< counted from 0
  std::int64_t first_sample = 0;   ///< index of the part's first sample in the global batch
  StepProfile* profile = nullptr;  ///< times the operations (step_profile.h); null: none
  std::int64_t position = 0;       ///< position of the first row; see CompileContext::positions
  /// In training: forward runs again, in the backward pass, on the same inputs (Recompute). It
  /// writes the same output and `saved`, and changes nothing else: no buffers, and nothing of other
  /// replicas.
  bool recomputing = false;
};

/// Computes the loss of rows of a network output and overwrites their logits by the gradient.
/// `first` is the index of the first row in the batch.
using RowLoss =
    std::function<void(const TensorView& logits, std::int64_t first, std::int64_t count)>;

/// The operands of one node in the memory of its plan. All arrays are [batch, shape...], row-major;
/// images are NHWC. Activations and their gradients have the plan's precision, the other arrays are
/// float32.
struct Operands {
  std::vector<TensorView> inputs;  ///< read only
  /// The input Layer::index_input(), whose view in `inputs` is empty; read only.
  std::span<const std::int32_t> indices;
  /// Written by forward. With CompileContext::loss_rows: memory for that many rows, in backward.
  TensorView output;
  TensorView output_gradient;               ///< backward may overwrite it
  std::vector<TensorView> input_gradients;  ///< written, not added to; empty if not needed
  /// Backward adds to input_gradients[0], which another reader of the input has written, instead of
  /// writing it. Only with Needs::adds_input_gradient.
  bool add_input_gradient = false;
  std::vector<TensorView> weights;           ///< the parameters in the plan's precision; read only
  std::vector<std::span<float>> parameters;  ///< read only, in declaration order
  /// Written by backward. All empty if no parameter is trained, with Needs::skips_frozen.
  std::vector<std::span<float>> parameter_gradients;
  /// Backward adds to parameter_gradients[0], which the layer that shares the parameter has
  /// written, instead of writing it. Only with Traits::shares_parameter.
  bool add_parameter_gradient = false;
  /// With Needs::narrow_gradient: backward writes the gradient of parameter 0 here, in the plan's
  /// precision, and not to parameter_gradients[0].
  TensorView narrow_gradient;
  std::vector<std::span<float>> buffers;  ///< read and, in training, updated
  /// Kept from forward to backward, Needs::saved_bytes bytes, 64-byte aligned.
  std::span<std::byte> saved;
  /// Workspace during one call, Needs::scratch_bytes bytes, 64-byte aligned.
  std::span<std::byte> scratch;
  std::span<std::byte> statistics;  ///< 64-byte aligned; see Needs::statistics_bytes
  /// Kept between the passes over a sequence, Needs::cache_bytes bytes, 64-byte aligned, at first
  /// zeroed.
  std::span<std::byte> cache;
  RowLoss loss;  ///< with CompileContext::loss_rows, in backward
};

/// The memory that an operation needs from the plan.
struct Needs {
  bool inputs_in_backward = true;  ///< false: the plan may reuse the inputs' memory after forward
  bool output_in_backward = true;  ///< false: the plan may reuse the output's memory after forward
  /// the output may share the memory of input 0, and its gradient that of the output's gradient
  bool in_place = false;
  /// the gradient of input 0 may share the memory of the output's gradient, also without `in_place`
  bool gradient_in_place = false;
  /// backward honors Operands::add_input_gradient; otherwise the plan adds in a separate pass
  bool adds_input_gradient = false;
  /// backward does not compute parameter gradients that are all empty; otherwise those of frozen
  /// parameters are written to memory that is never read
  bool skips_frozen = false;
  /// a forward with PassContext::recomputing reads what the first one saved instead of writing it
  bool saves_once = false;
  /// Nonzero: the number of channels of input 0 in memory; the additional ones are zero. Only with
  /// CompileContext::reads_network_input.
  std::int64_t input_channels = 0;
  /// backward writes the gradient of parameter 0 in the plan's precision. The plan widens several
  /// such gradients at once.
  bool narrow_gradient = false;
  std::size_t saved_bytes = 0;    ///< bytes kept from forward to backward
  std::size_t scratch_bytes = 0;  ///< bytes of workspace during one call
  /// Bytes of statistics that forward computes about its output for its only reader, in a format
  /// private to the two operations. Nonzero only with CompileContext::fused_statistics.
  std::size_t statistics_bytes = 0;
  /// Bytes of Operands::cache; the same for any number of rows. Nonzero only with
  /// CompileContext::positions.
  std::size_t cache_bytes = 0;
  /// With CompileContext::loss_rows: elements from one row of the output in memory to the next.
  std::int64_t row_stride = 0;
};

/// A layer compiled for one device, batch size and mode. Belongs to one plan; called by one thread.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual Needs needs() const = 0;  ///< called once, before memory is planned
  /// Writes the output and `saved`. Called twice if the plan computes activations again; see
  /// PassContext::recomputing.
  virtual void forward(const Operands& operands, const PassContext& pass) = 0;
  /// Writes input_gradients (those that are not empty) and parameter_gradients.
  virtual void backward(const Operands& operands, const PassContext& pass) = 0;
  /// The algorithm of a part (step_profile.h) for profiles; empty if there is only one. A string
  /// literal, because it outlives this operation.
  virtual std::string_view algorithm(Part /*part*/) const { return {}; }

  /// Replace forward and backward if this replica has no samples but other replicas have: an
  /// operation that communicates with them must participate. The operands are those of a plan for
  /// one sample. Only parameters, buffers and `saved` are meaningful; `saved` is kept from one call
  /// to the other.
  virtual void forward_without_samples(const Operands& /*operands*/) {}
  /// See forward_without_samples().
  virtual void backward_without_samples(const Operands& /*operands*/) {}
};

/// The values that compiling a layer depends on.
struct CompileContext {
  std::string name;           ///< name of the node
  std::int64_t batch = 0;     ///< samples
  std::vector<Shape> inputs;  ///< without the batch
  Shape output;               ///< without the batch
  bool training = false;      ///< whether a backward pass follows
  /// Also add the second input to the output; only with Traits::absorbs_addition.
  bool fused_add = false;
  bool fused_relu = false;  ///< also apply max(x, 0) to the output; only with Traits::absorbs_relu
  /// Forward may compute the statistics that the following layer needs.
  bool fused_statistics = false;
  bool input_statistics = false;  ///< the preceding layer has computed statistics of input 0
  bool input_gradients = true;    ///< false if no layer before this one is trained
  bool frozen = false;            ///< the layer has parameters, none of which is trained
  /// Another layer's backward writes the gradient of input 0 first: Operands::add_input_gradient,
  /// if the operation has Needs::adds_input_gradient.
  bool adds_input_gradient = false;
  /// Input 0 is an input of the network, which no other layer reads.
  bool reads_network_input = false;
  /// Nonzero: a pass computes some rows of sequences of this many positions, from
  /// PassContext::position on, after passes over those before. The first extents of `inputs` and
  /// `output` are these rows. Only in inference, with Traits::incremental; on a GPU with
  /// Traits::incremental_on_gpu, too. A sequence is one document: segments are not read.
  std::int64_t positions = 0;
  /// Nonzero: only the loss reads the output. Instead of forward(), which is not called, backward()
  /// computes it, at most this many rows at a time, and its loss by Operands::loss, which leaves
  /// the output's gradient. Only in training, with Traits::computes_loss.
  std::int64_t loss_rows = 0;

  /// Whether backward() is called.
  bool has_backward() const { return training && (input_gradients || !frozen); }
};

/// Properties of a layer that the fusion pass (graph.h) uses.
struct Traits {
  /// A function that other layers may compute as part of theirs: max(x, 0), or the sum of the
  /// inputs.
  enum class Function { other, relu, addition };
  /// Per-channel sums of an array: this layer may compute those of its output
  /// (CompileContext::fused_statistics), or use those of its input (`input_statistics`), on devices
  /// that fuse statistics.
  enum class Statistics { none, computes, uses };
  Function function = Function::other;       ///< the function of this layer
  bool absorbs_relu = false;                 ///< compile() honors `fused_relu`
  bool absorbs_addition = false;             ///< compile() honors `fused_add`
  Statistics statistics = Statistics::none;  ///< its part in fused statistics
  /// With CompileContext::frozen the layer does not change its buffers.
  bool keeps_buffers_if_frozen = false;
  /// max(x, 0) can move from before this layer to after it without changing any result, as with max
  /// pooling.
  bool commutes_with_relu = false;
  /// Nonzero: the input Layer::index_input() has values from 0 to index_count - 1. Each batch is
  /// checked before its pass.
  std::int64_t index_count = 0;
  /// A later layer may use parameter 0, too (BuildContext::shared_parameter): backward honors
  /// Operands::add_parameter_gradient, which a CustomLayer cannot.
  bool shares_parameter = false;
  /// Row t of the output [T, ...] depends on rows 0 to t of the inputs [T, ...] alone, and
  /// compile() on a CPU honors CompileContext::positions.
  bool incremental = false;
  /// compile() on a GPU honors it, too.
  bool incremental_on_gpu = false;
  /// compile() honors CompileContext::loss_rows.
  bool computes_loss = false;
};

/// An immutable layer description, shared by all replicas.
class Layer {
 public:
  virtual ~Layer() = default;
  /// Such as "conv2d"; also the stem of automatic names.
  virtual std::string kind() const = 0;
  /// Checks the inputs, declares parameters and returns the output shape.
  virtual Shape build(BuildContext& context) const = 0;
  /// Creates the operation. Null if the output is the input's memory under another shape or name
  /// (Flatten; Dropout in inference).
  virtual std::unique_ptr<Operation> compile(const CompileContext& context,
                                             Backend& backend) const = 0;

  /// Multiplications and additions of the products in one forward pass, for a profile; the
  /// gradients of weights and of inputs each need as many. 0, the default: bound by memory only.
  virtual std::int64_t flop(const CompileContext& /*context*/) const { return 0; }

  /// What it allows the fusion pass to do; by default nothing.
  virtual Traits traits() const { return {}; }

  /// Which of the `inputs` inputs is an int32 input of the network, read as Operands::indices. By
  /// default the first one, with Traits::index_count, else none.
  virtual std::optional<std::size_t> index_input(std::size_t /*inputs*/) const {
    return traits().index_count > 0 ? std::optional<std::size_t>(0) : std::nullopt;
  }
};

}  // namespace lockstep::inline v0::model
