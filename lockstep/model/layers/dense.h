#pragma once

#include "lockstep/model/layer.h"

namespace lockstep::model {

/// Fully connected: [F] to [units], y = x W^T + b. Kernel [units, F], bias [units].
class Dense final : public Layer {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t units = 0;                                             ///< outputs per sample; required
    bool use_bias = true;                                               ///< whether to add a bias to each unit
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;  ///< of the kernel; biases start at 0
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Dense(const Options& options) : options_(options) {}

  std::string kind() const override { return "dense"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
  Traits traits() const override { return {.absorbs_relu = true}; }

 private:
  Options options_;
};

}  // namespace lockstep::model
