// What a layer is: a description (build), and the operation that a plan runs (compile).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/model/parameters.h"
#include "lockstep/model/shape.h"
#include "lockstep/model/tensor.h"

namespace lockstep::model {

class Backend;

/// What a layer sees and declares while the network is built.
class BuildContext {
 public:
  /// For the layer `layer` of kind `kind`, with the shapes of what it reads, without the batch.
  BuildContext(std::string layer, std::string kind, std::vector<Shape> inputs);

  const std::vector<Shape>& inputs() const { return inputs_; }  ///< shapes of what the layer reads, without the batch
  /// The only input; refuses where there are several.
  const Shape& input() const;
  /// The only input as [H, W, C]; refuses other ranks.
  const Shape& image_input() const;

  /// Declares a trained array. Its full name becomes "LAYER/NAME".
  void parameter(std::string_view name, Shape shape, Initializer initializer, bool decay = true);
  /// Declares an array that is kept but not trained, such as a moving mean.
  void buffer(std::string_view name, Shape shape, float initial);

  /// Throws Error (input) `[layer (kind)] needed; given`.
  [[noreturn]] void refuse(std::string_view needed, std::string_view given) const;

  /// The arrays declared as trained, in order; once, by the network.
  std::vector<ParameterInfo> take_parameters() { return std::move(parameters_); }
  /// The arrays declared as kept; likewise.
  std::vector<ParameterInfo> take_buffers() { return std::move(buffers_); }

 private:
  std::string layer_;
  std::string kind_;
  std::vector<Shape> inputs_;
  std::vector<ParameterInfo> parameters_;
  std::vector<ParameterInfo> buffers_;
};

/// What random layers depend on in one pass; see StepContext.
struct PassContext {
  bool training = false;          ///< false in evaluation and prediction
  std::uint64_t seed = 1;         ///< of the run
  std::int64_t step = 0;          ///< counted from 0
  std::int64_t first_sample = 0;  ///< position of the part's first sample in the global batch
};

/// One node's operands in the memory of its plan. All arrays are [batch, shape...], row-major; images are NHWC. Arrays
/// of samples and their gradients are of the plan's precision, the others float32.
struct Operands {
  std::vector<TensorView> inputs;                     ///< read only
  TensorView output;                                  ///< to be written by forward
  TensorView output_gradient;                         ///< may be overwritten by backward: nobody reads it later
  std::vector<TensorView> input_gradients;            ///< to be written, not added to; empty where nobody needs it
  std::vector<TensorView> weights;                    ///< the parameters in the plan's precision; read only
  std::vector<std::span<float>> parameters;           ///< read only, in the order of declaration
  std::vector<std::span<float>> parameter_gradients;  ///< to be written
  std::vector<std::span<float>> buffers;              ///< read and, in training, updated
  std::span<std::byte> saved;       ///< kept from forward to backward; Needs::saved_bytes of them, 64-byte aligned
  std::span<std::byte> scratch;     ///< free to use during one call; Needs::scratch_bytes of them, 64-byte aligned
  std::span<std::byte> statistics;  ///< 64-byte aligned; see Needs::statistics_bytes
};

/// What an operation asks of the plan.
struct Needs {
  bool inputs_in_backward = true;  ///< false lets the plan reuse the inputs' memory after forward
  bool output_in_backward = true;  ///< likewise for the output
  bool in_place = false;        ///< output may be the memory of input 0, and its gradient that of the output's gradient
  std::size_t saved_bytes = 0;  ///< from forward to backward
  std::size_t scratch_bytes = 0;  ///< during one call
  /// Of what forward finds out about its output for the only operation that reads it; in a form that the two know. More
  /// than 0 only where CompileContext::fused_statistics.
  std::size_t statistics_bytes = 0;
};

/// A layer compiled for one device, batch and mode. Belongs to one plan, called by one thread.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual Needs needs() const = 0;  ///< asked once, before memory is planned
  virtual void forward(const Operands& operands, const PassContext& pass) = 0;  ///< writes the output and `saved`
  /// Writes input_gradients (those that are not empty) and parameter_gradients.
  virtual void backward(const Operands& operands, const PassContext& pass) = 0;

  /// In place of forward and backward where this replica has no samples and others have: an operation that exchanges
  /// something with them takes part. The operands are those of a plan for one sample; they say nothing, but for
  /// parameters and buffers, and saved is kept from one to the other.
  virtual void forward_without_samples(const Operands& /*operands*/) {}
  virtual void backward_without_samples(const Operands& /*operands*/) {}  ///< see forward_without_samples()
};

/// What compiling a layer depends on.
struct CompileContext {
  std::string name;               ///< of the node
  std::int64_t batch = 0;         ///< samples
  std::vector<Shape> inputs;      ///< without the batch
  Shape output;                   ///< without the batch
  bool training = false;          ///< whether backward follows
  bool fused_add = false;         ///< add the second input to the output; only where Layer::can_fuse_addition()
  bool fused_relu = false;        ///< apply max(x, 0) to the output as well; only where Layer::can_fuse_relu()
  bool fused_statistics = false;  ///< forward may find out for the layer behind this one what that needs to know
  bool input_statistics = false;  ///< the layer before this one has done so, for input 0
  bool input_gradients = true;    ///< false where nothing before this layer is trained
};

/// Described once, shared by all replicas: immutable.
class Layer {
 public:
  virtual ~Layer() = default;
  /// "conv2d"; also the stem of automatic names.
  virtual std::string kind() const = 0;
  /// Checks the inputs, declares parameters, returns the output's shape.
  virtual Shape build(BuildContext& context) const = 0;
  /// The operation, or null where the output is the input's memory under another shape or name (Flatten; Dropout in
  /// inference).
  virtual std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const = 0;

  /// Whether compile() honours `fused_relu`.
  virtual bool can_fuse_relu() const { return false; }
  virtual bool is_relu() const { return false; }  ///< whether it is max(x, 0) and nothing else, which others may fuse
  /// Whether compile() honours `fused_add`, on devices whose backend fuses additions.
  virtual bool can_fuse_addition() const { return false; }
  /// Whether it is the sum of two inputs and nothing else, which others may fuse.
  virtual bool is_addition() const { return false; }
  /// Whether compile() honours `fused_statistics` and `input_statistics`, on devices whose backend fuses statistics.
  virtual bool can_find_statistics() const { return false; }
  /// Whether compile() honours `input_statistics`, on devices whose backend fuses statistics.
  virtual bool can_take_statistics() const { return false; }
  /// Whether max(x, 0) may move from before this layer to behind it without a change of any result: true for max
  /// pooling.
  virtual bool commutes_with_relu() const { return false; }
};

}  // namespace lockstep::model
