#pragma once

#include <optional>

#include "lockstep/model/layer.h"
#include "lockstep/model/layers/window.h"

namespace lockstep::model {

/// Options, as in Keras.
struct PoolOptions {
  Extent2D pool = 2;                               ///< window size in pixels
  std::optional<Extent2D> strides = std::nullopt;  ///< distance between windows; default: the pool size
  Padding padding = Padding::valid;  ///< valid: windows inside the image; same: also windows that overlap its edges
};

/// Maximum of each window: [H, W, C] to [H', W', C].
class MaxPool2D final : public Layer {
 public:
  /// Default: adjacent windows of 2 x 2 pixels.
  explicit MaxPool2D(const PoolOptions& options = {}) : options_(options) {}
  std::string kind() const override { return "max_pool2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
  Traits traits() const override { return {.commutes_with_relu = true}; }

 private:
  PoolOptions options_;
};

/// Mean of each window over its elements inside the input: [H, W, C] to [H', W', C].
class AveragePool2D final : public Layer {
 public:
  /// Default: adjacent windows of 2 x 2 pixels.
  explicit AveragePool2D(const PoolOptions& options = {}) : options_(options) {}
  std::string kind() const override { return "average_pool2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;

 private:
  PoolOptions options_;
};

/// Mean over height and width: [H, W, C] to [C].
class GlobalAveragePooling2D final : public Layer {
 public:
  std::string kind() const override { return "global_average_pooling2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
};

}  // namespace lockstep::model
