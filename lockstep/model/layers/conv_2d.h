#pragma once

#include <optional>

#include "lockstep/model/layer.h"
#include "lockstep/model/layers/window.h"

namespace lockstep::model {

/// Two-dimensional convolution: [H, W, C] to [H', W', filters]. Kernel [filters, kernel_h, kernel_w, C / groups], bias
/// [filters].
class Conv2D final : public Layer {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t filters = 0;          ///< output channels; required
    Extent2D kernel = 3;               ///< window size in pixels
    Extent2D strides = 1;              ///< distance between windows in pixels
    Padding padding = Padding::valid;  ///< valid: windows inside the image; same: zeros at its edges
    std::int64_t groups = 1;  ///< channel groups, each with its own filters; must divide input channels and filters
    bool use_bias = true;     ///< whether to add a bias to each output channel
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;  ///< of the kernel; biases start at 0
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Conv2D(const Options& options) : options_(options) {}

  std::string kind() const override { return "conv2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
  Traits traits() const override {
    return {.absorbs_relu = true,
            .statistics = options_.use_bias ? Traits::Statistics::none : Traits::Statistics::computes};
  }

 private:
  Options options_;
};

}  // namespace lockstep::model
