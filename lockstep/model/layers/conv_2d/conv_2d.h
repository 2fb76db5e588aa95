#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/model/layer/builtin_layer.h"
#include "lockstep/model/layer/window.h"

namespace lockstep::inline v0::model {

struct Conv2DSpec;

/// Two-dimensional convolution: [H, W, C] to [H', W', filters]. Kernel [filters, kernel_h,
/// kernel_w, C / groups], bias [filters].
class Conv2D final : public BuiltinLayer {
 public:
  /// Options, as in Keras.
  struct Options {
    std::int64_t filters = 0;  ///< output channels; required
    Extent2D kernel = 3;       ///< window size in pixels
    Extent2D strides = 1;      ///< distance between windows in pixels
    Extent2D dilation = 1;     ///< distance between elements of a window in pixels
    /// Valid: windows inside the image; same: zeros at its edges.
    Padding padding = Padding::valid;
    /// Channel groups, each with its own filters; must divide input channels and filters.
    std::int64_t groups = 1;
    bool use_bias = true;  ///< whether to add a bias to each output channel
    /// Initial values of the kernel; biases start at 0.
    Initializer::Kind initializer = Initializer::Kind::glorot_uniform;
  };
  /// Sizes are checked when the layer is added to a network.
  explicit Conv2D(const Options& options) : options_(options) {}

  /// Reads the options from a description (network_json.h). Throws Error (input).
  static std::shared_ptr<const Layer> read(JsonObject& object, const DataShape& data);
  /// Writes the options as read() reads them.
  void write(nlohmann::json& object) const;

  const Options& options() const { return options_; }  ///< as constructed
  std::string kind() const override { return "conv2d"; }
  Shape build(BuildContext& context) const override;
  /// build() for images of shape `input`. If `is_row`, they and the kernel have a height of 1,
  /// which the shape of the kernel leaves out.
  Shape build_on(BuildContext& context, const Shape& input, bool is_row) const;
  std::unique_ptr<Operation> compile_cpu(const CompileContext& context,
                                         cpu::Context& cpu) const override;
  std::unique_ptr<Operation> compile_gpu(const CompileContext& context,
                                         cuda::Context& gpu) const override;
  std::int64_t flop(const CompileContext& context) const override;
  Traits traits() const override {
    return {
        .absorbs_relu = true,
        .statistics = options_.use_bias ? Traits::Statistics::none : Traits::Statistics::computes};
  }
  /// The convolution that compile_cpu() and compile_gpu() compile.
  Conv2DSpec spec(const CompileContext& context) const;

 private:
  Options options_;
};

/// A convolution for one batch size.
struct Conv2DSpec {
  std::int64_t batch = 0;            ///< samples
  WindowGeometry window;             ///< geometry of input, kernel and output
  std::int64_t filters = 0;          ///< output channels
  std::int64_t groups = 1;           ///< channel groups, each with its own filters
  bool bias = true;                  ///< whether to add a bias to each output channel
  bool relu = false;                 ///< whether to fuse a ReLU into the output
  bool training = false;             ///< whether a backward pass follows
  bool input_gradient = false;       ///< whether backward must write the input's gradient
  bool adds_input_gradient = false;  ///< whether it must add to it instead
  bool reads_network_input = false;  ///< whether the input is the network's, without other readers
  /// whether a normalization is the only reader of the output; only with
  /// Backend::fuses_statistics()
  bool statistics = false;
};

}  // namespace lockstep::inline v0::model
