#pragma once

#include <optional>

#include "lockstep/model/layer.h"
#include "lockstep/model/layers/window.h"

namespace lockstep::model {

/// Sizes, as in Keras.
struct PoolOptions {
  Extent2D pool = 2;                               ///< of the window, in pixels
  std::optional<Extent2D> strides = std::nullopt;  ///< as large as the pool where not given
  Padding padding = Padding::valid;  ///< valid: windows within the image; same: also those that reach over its edges
};

/// Largest value of each window: [H, W, C] to [H', W', C].
class MaxPool2D final : public Layer {
 public:
  /// Windows of 2 x 2 pixels, one beside the other, unless said otherwise.
  explicit MaxPool2D(const PoolOptions& options = {}) : options_(options) {}
  std::string kind() const override { return "max_pool2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile(const CompileContext& context, Backend& backend) const override;
  bool commutes_with_relu() const override { return true; }

 private:
  PoolOptions options_;
};

/// Mean of each window, over the elements that are inside the input: [H, W, C] to [H', W', C].
class AveragePool2D final : public Layer {
 public:
  /// Windows of 2 x 2 pixels, one beside the other, unless said otherwise.
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
