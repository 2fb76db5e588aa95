#pragma once

#include <optional>

#include "model/layer.h"
#include "model/layers/window.h"

namespace lockstep::model {

/// Two-dimensional convolution: [H, W, C] to [H', W', filters]. Kernel [filters, kernel_h, kernel_w, C / groups], bias
/// [filters].
class Conv2D final : public Layer {
 public:
  struct Options {
    std::int64_t filters = 0;
    Extent2D kernel = 3;
    Extent2D strides = 1;
    Padding padding = Padding::valid;
    std::int64_t groups = 1;
    bool use_bias = true;
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
  };
  explicit Conv2D(const Options& options) : options_(options) {}

  std::string kind() const override { return "conv2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
  bool can_fuse_relu() const override { return true; }
  bool can_find_statistics() const override { return !options_.use_bias; }

 private:
  Options options_;
};

}  // namespace lockstep::model
