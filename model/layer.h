// What a layer is: a description (build), and the operation that a plan runs (compile). A user's own layer derives from
// CustomLayer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameters.h"
#include "model/shape.h"
#include "model/tensor.h"

namespace lockstep::model {

class Backend;

/// What a layer sees and declares while the network is built.
class BuildContext {
 public:
  BuildContext(std::string layer, std::string kind, std::vector<Shape> inputs);

  const std::vector<Shape>& inputs() const { return inputs_; }
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

  std::vector<ParameterInfo> take_parameters() { return std::move(parameters_); }
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
  bool training = false;
  std::uint64_t seed = 1;
  std::int64_t step = 0;
  std::int64_t first_sample = 0;
};

/// One node's operands in the memory of its plan. All arrays are [batch, shape...], row-major; images are NHWC. Arrays
/// of samples and their gradients are of the plan's precision, the others float32.
struct Operands {
  std::vector<TensorView> inputs;  ///< read only
  TensorView output;
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

/// The operands as a custom layer sees them: in host memory, all float32.
struct Tensors {
  std::vector<std::span<const float>> inputs;
  std::span<float> output;
  std::span<float> output_gradient;
  std::vector<std::span<float>> input_gradients;
  std::vector<std::span<float>> parameters;
  std::vector<std::span<float>> parameter_gradients;
  std::vector<std::span<float>> buffers;
  std::span<std::byte> saved;
  std::span<std::byte> scratch;
};

/// What an operation asks of the plan.
struct Needs {
  bool inputs_in_backward = true;  ///< false lets the plan reuse the inputs' memory after forward
  bool output_in_backward = true;  ///< likewise for the output
  bool in_place = false;  ///< output may be the memory of input 0, and its gradient that of the output's gradient
  std::size_t saved_bytes = 0;
  std::size_t scratch_bytes = 0;
  /// Of what forward finds out about its output for the only operation that reads it; in a form that the two know. More
  /// than 0 only where CompileContext::fused_statistics.
  std::size_t statistics_bytes = 0;
};

/// A layer compiled for one device, batch and mode. Belongs to one plan, called by one thread.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual Needs needs() const = 0;
  virtual void forward(const Operands& operands, const PassContext& pass) = 0;
  /// Writes input_gradients (those that are not empty) and parameter_gradients.
  virtual void backward(const Operands& operands, const PassContext& pass) = 0;

  /// In place of forward and backward where this replica has no samples and others have: an operation that exchanges
  /// something with them takes part. The operands are those of a plan for one sample; they say nothing, but for
  /// parameters and buffers, and saved is kept from one to the other.
  virtual void forward_without_samples(const Operands& /*operands*/) {}
  virtual void backward_without_samples(const Operands& /*operands*/) {}
};

/// What compiling a layer depends on.
struct CompileContext {
  std::string name;  ///< of the node
  std::int64_t batch = 0;
  std::vector<Shape> inputs;  ///< without the batch
  Shape output;
  bool training = false;
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
  virtual bool is_relu() const { return false; }
  /// Whether compile() honours `fused_add`, on devices whose backend fuses additions.
  virtual bool can_fuse_addition() const { return false; }
  virtual bool is_addition() const { return false; }
  /// Whether compile() honours `fused_statistics` and `input_statistics`, on devices whose backend fuses statistics.
  virtual bool can_find_statistics() const { return false; }
  virtual bool can_take_statistics() const { return false; }
  /// Whether max(x, 0) may move from before this layer to behind it without a change of any result: true for max
  /// pooling.
  virtual bool commutes_with_relu() const { return false; }
};

/// A user's own layer: build, forward, backward. It runs on the CPU; a plan of another device refuses it.
class CustomLayer : public Layer {
 public:
  virtual Needs needs(const CompileContext& /*context*/) const { return {}; }
  virtual void forward(const Tensors& tensors, const PassContext& pass) const = 0;
  virtual void backward(const Tensors& tensors, const PassContext& pass) const = 0;

  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const final;
};

}  // namespace lockstep::model
