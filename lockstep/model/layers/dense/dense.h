#pragma once

#include <nlohmann/json_fwd.hpp>

#include "lockstep/model/layers/builtin_layer.h"

namespace lockstep::model {

struct DenseSpec;

/// Fully connected: [F] to [units], y = x W^T + b. Kernel [units, F], bias [units].
class Dense final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t units = 0;  ///< outputs per sample; required
    bool use_bias = true;    ///< whether to add a bias to each unit
    /// Of the kernel; biases start at 0.
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Dense(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  std::string kind() const override { return "dense"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  Traits traits() const override { return {.absorbs_relu = true}; }

 private:
  DenseSpec spec(const CompileContext& context) const;

  Options options_;
};

/// A dense layer for one batch size.
struct DenseSpec {
  std::int64_t batch = 0;       ///< samples
  std::int64_t inputs = 0;      ///< elements per sample
  std::int64_t units = 0;       ///< outputs per sample
  bool bias = true;             ///< whether to add a bias to each unit
  bool relu = false;            ///< whether to fuse a ReLU into the output
  bool training = false;        ///< whether a backward pass follows
  bool input_gradient = false;  ///< whether backward must write the input's gradient
};

}  // namespace lockstep::model
