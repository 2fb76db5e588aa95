// Pooling over the windows of an image, and its reverse.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"
#include "lockstep/model/layer/window.h"

namespace lockstep::inline v0::model {

struct Pool2DSpec;

/// Options, as in Keras.
struct PoolOptions {
  Extent2D pool = 2;  ///< window size in pixels
  /// Distance between windows; default: the pool size.
  std::optional<Extent2D> strides = std::nullopt;
  Padding padding = Padding::valid;  ///< valid: windows inside the image; same: also windows that
                                     ///< overlap its edges
};

/// Common base of the poolings.
class Pool2D : public BuiltinLayer {
 public:
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const final;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const final;

 protected:
  /// The pooling that `context` describes.
  virtual Pool2DSpec spec(const CompileContext& context) const = 0;
};

/// A pooling with windows of a given size.
class WindowPool2D : public Pool2D {
 public:
  /// Writes the options as read() of the layers reads them.
  void write(nlohmann::json& object) const;
  const PoolOptions& options() const { return options_; }  ///< as constructed
  Shape build(BuildContext& context) const override;

 protected:
  explicit WindowPool2D(const PoolOptions& options) : options_(options) {}  ///< stores the options

 private:
  PoolOptions options_;
};

/// Maximum of each window: [H, W, C] to [H', W', C].
class MaxPool2D final : public WindowPool2D {
 public:
  /// Default: adjacent windows of 2 x 2 pixels.
  explicit MaxPool2D(const PoolOptions& options = {}) : WindowPool2D(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);

  std::string kind() const override { return "max_pool2d"; }
  Traits traits() const override { return {.commutes_with_relu = true}; }

 private:
  Pool2DSpec spec(const CompileContext& context) const override;
};

/// Mean of each window over its elements inside the input: [H, W, C] to [H', W', C].
class AveragePool2D final : public WindowPool2D {
 public:
  /// Default: adjacent windows of 2 x 2 pixels.
  explicit AveragePool2D(const PoolOptions& options = {}) : WindowPool2D(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);

  std::string kind() const override { return "average_pool2d"; }

 private:
  Pool2DSpec spec(const CompileContext& context) const override;
};

/// A pooling whose only window is the image.
class GlobalPool2D : public Pool2D {
 public:
  Shape build(BuildContext& context) const override { return {context.image_input()[2]}; }
};

/// Maximum over height and width: [H, W, C] to [C].
class GlobalMaxPooling2D final : public GlobalPool2D {
 public:
  std::string kind() const override { return "global_max_pooling2d"; }

 private:
  Pool2DSpec spec(const CompileContext& context) const override;
};

/// Mean over height and width: [H, W, C] to [C].
class GlobalAveragePooling2D final : public GlobalPool2D {
 public:
  std::string kind() const override { return "global_average_pooling2d"; }

 private:
  Pool2DSpec spec(const CompileContext& context) const override;
};

/// Enlarges an image: [H, W, C] to [size.height * H, size.width * W, C].
class UpSampling2D final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    Extent2D size = 2;  ///< factors on height and width
    /// Repeats pixels, or interpolates between them.
    Interpolation interpolation = Interpolation::nearest;
  };
  UpSampling2D() : options_() {}
  /// The size is checked when the layer is added to a network.
  explicit UpSampling2D(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "up_sampling2d"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;

 private:
  Options options_;
};

/// The average pooling whose reverse is an upsampling by `size` to images of shape `output`.
WindowGeometry reversed_up_sampling(const Shape& output, Extent2D size);

/// A pooling layer for one batch size.
struct Pool2DSpec {
  /// The maximum of each window, or the mean of its elements that are not padding.
  enum class Kind { max, average };
  Kind kind = Kind::max;   ///< the reduction
  std::int64_t batch = 0;  ///< samples
  WindowGeometry window;   ///< geometry of input, window and output
  bool training = false;   ///< whether a backward pass follows
};

}  // namespace lockstep::inline v0::model
