// Layers that work element by element, or only change the shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"

namespace lockstep::inline v0::model {

/// max(x, 0). Any shape.
class ReLU final : public BuiltinLayer {
 public:
  std::string kind() const override { return "re_lu"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override {
    return {.function = Traits::Function::relu, .incremental = true, .incremental_on_gpu = true};
  }
};

/// In training, sets a fraction `rate` of the elements to 0 and divides the others by 1 - rate
/// (Srivastava et al., JMLR 2014). The mask depends only on (seed, step, layer, index of the sample
/// in the global batch). Identity in inference.
class Dropout final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    float rate = 0.5f;  ///< fraction of the elements set to 0 in training, from 0 to less than 1
  };
  /// The rate is checked when the layer is added to a network.
  explicit Dropout(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "dropout"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override { return {.incremental = true, .incremental_on_gpu = true}; }

 private:
  // Whether the output is the input.
  bool is_identity(const CompileContext& context) const {
    return !context.training || options_.rate == 0;
  }

  Options options_;
};

/// [H, W, C] to [H*W*C], in the same memory.
class Flatten final : public Layer {
 public:
  std::string kind() const override { return "flatten"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context,
                                     Backend& backend) const override;
};

/// Sum of two or more inputs of the same shape (a residual connection).
class Add final : public BuiltinLayer {
 public:
  std::string kind() const override { return "add"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override {
    return {.function = Traits::Function::addition,
            .absorbs_relu = true,
            .incremental = true,
            .incremental_on_gpu = true};
  }
};

/// Product of two or more inputs of the same shape (a gate), or of two where one has the extent 1
/// along neighboring axes, such as [H, W, C] and the weights [1, 1, C] of its channels (squeeze and
/// excitation).
class Multiply final : public BuiltinLayer {
 public:
  std::string kind() const override { return "multiply"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override { return {.incremental = true, .incremental_on_gpu = true}; }
};

/// How a product repeats its smaller input: [outer, inner] is read as [outer, repeats, inner].
struct Broadcast {
  std::int64_t outer = 1;        ///< with the batch
  std::int64_t repeats = 1;      ///< 1: both inputs have one shape
  std::int64_t inner = 1;        ///< consecutive elements
  std::size_t larger_input = 0;  ///< the index of the input that is not repeated
};

/// The broadcast of `batch` samples of two shapes; nullopt if they do not fit.
std::optional<Broadcast> broadcast_of(const Shape& first, const Shape& second, std::int64_t batch);

/// exp(x) / sum of exp(x) over the last axis. For outputs used as probabilities; the cross-entropy
/// loss takes logits and does not need it.
class Softmax final : public BuiltinLayer {
 public:
  std::string kind() const override { return "softmax"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  Traits traits() const override { return {.incremental = true, .incremental_on_gpu = true}; }
};

}  // namespace lockstep::inline v0::model
