// Convolutions that are computed as a Conv2D with other options or of another shape, or by its
// passes in another order.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/model/layers/conv_2d/conv_2d.h"

namespace lockstep::inline v0::model {

/// Common base of these convolutions.
class DerivedConvolution : public BuiltinLayer {
 public:
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const final;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const final;
  std::int64_t flop(const CompileContext& context) const final;
  Traits traits() const final { return {.absorbs_relu = true}; }

 protected:
  /// The convolution of images that computes it, for inputs of this shape.
  virtual Conv2D convolution(const Shape& input) const = 0;
  /// `context` of that convolution.
  virtual CompileContext image_context(const CompileContext& context) const { return context; }
};

/// Convolution along the first axis: [T, C] to [T', filters]. Kernel [filters, kernel, C / groups],
/// bias [filters].
class Conv1D final : public DerivedConvolution {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t filters = 0;   ///< output channels; required
    std::int64_t kernel = 3;    ///< window size in steps
    std::int64_t strides = 1;   ///< distance between windows in steps
    std::int64_t dilation = 1;  ///< distance between elements of a window in steps
    /// Valid: windows inside the input; same: zeros at its ends.
    Padding padding = Padding::valid;
    /// Channel groups, each with its own filters; must divide input channels and filters.
    std::int64_t groups = 1;
    bool use_bias = true;  ///< whether to add a bias to each output channel
    /// Initial values of the kernel; biases start at 0.
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Conv1D(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "conv1d"; }
  Shape build(BuildContext& context) const override;

 private:
  Conv2D convolution(const Shape& input) const override;
  CompileContext image_context(const CompileContext& context) const override;

  Options options_;
};

/// Separate convolution of each channel: [H, W, C] to [H', W', C * depth_multiplier]. Kernel [C *
/// depth_multiplier, kernel_h, kernel_w, 1], bias [C * depth_multiplier].
class DepthwiseConv2D final : public DerivedConvolution {
 public:
  /// Options, as in Keras.
  struct Options {
    Extent2D kernel = 3;    ///< window size in pixels
    Extent2D strides = 1;   ///< distance between windows in pixels
    Extent2D dilation = 1;  ///< distance between elements of a window in pixels
    /// Valid: windows inside the image; same: zeros at its edges.
    Padding padding = Padding::valid;
    std::int64_t depth_multiplier = 1;  ///< filters of each channel
    bool use_bias = true;               ///< whether to add a bias to each output channel
    /// Initial values of the kernel; biases start at 0.
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
  };
  DepthwiseConv2D() : options_() {}
  /// Sizes are checked when the layer is added to a network.
  explicit DepthwiseConv2D(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "depthwise_conv2d"; }
  Shape build(BuildContext& context) const override;

 private:
  Conv2D convolution(const Shape& input) const override;

  Options options_;
};

/// Transposed convolution: [H, W, C] to a larger [H', W', filters]. Its output is the gradient of
/// the input of a Conv2D from [H', W', filters] to [H, W, C] with the same options. Its kernel is
/// [C, kernel_h, kernel_w, filters], as in PyTorch; bias [filters].
class Conv2DTranspose final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t filters = 0;  ///< output channels; required
    Extent2D kernel = 3;       ///< window size in pixels
    Extent2D strides = 1;      ///< factor on height and width
    /// Same: H' = strides * H. Valid: plus the part of the window that exceeds the stride.
    /// Symmetric: strides * (H - 1) + 1, or one less for an even kernel.
    Padding padding = Padding::valid;
    bool use_bias = true;  ///< whether to add a bias to each output channel
    /// Initial values of the kernel; biases start at 0.
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Conv2DTranspose(const Options& options) : options_(options) {}
  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "conv2d_transpose"; }
  Shape build(BuildContext& context) const override;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  /// The Conv2D; the bias is that of this layer.
  Conv2DSpec spec(const CompileContext& context) const;

 private:
  Options options_;
};

/// The output of a Conv2DTranspose for images of shape `input`.
Shape transposed_shape(const Shape& input, const Conv2DTranspose::Options& options);

}  // namespace lockstep::inline v0::model
