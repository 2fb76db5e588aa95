#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/model/cuda/bias.h"
#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/convolution.h"
#include "lockstep/model/layers/conv_2d/convolution_choice.h"
#include "lockstep/model/layers/conv_2d/derived.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// Input images of the network are padded with channels during conversion, unless most channels
// would be zeros: otherwise cuDNN pads the images in each pass.
Conv2DSpec with_whole_channels(Conv2DSpec spec, Precision precision) {
  const std::int64_t least = min_channels(precision);
  const std::int64_t channels = spec.window.channels;
  if (spec.reads_network_input && spec.groups == 1 && channels < least && 4 * channels > least)
    spec.window.channels = least;
  return spec;
}

class Conv2DOperation final : public Operation {
 public:
  Conv2DOperation(Context& context, const Conv2DSpec& spec)
      : Conv2DOperation(context, with_whole_channels(spec, context.options().precision),
                        spec.window.channels) {}

  // `channels` are those of the kernel as a parameter, which has fewer than the images in memory if
  // those were extended.
  Conv2DOperation(Context& context, const Conv2DSpec& spec, std::int64_t channels)
      : context_(context),
        spec_(spec),
        channels_(channels),
        outputs_(channel_layout(spec.batch * spec.window.output_height * spec.window.output_width,
                                spec.filters, context.options().precision,
                                context.multiprocessors())),
        forward_(choose_convolution(context, spec, channels, ConvolutionPass::forward)) {
    if (spec.statistics) {
      auto summing = choose_summing_convolution(context, spec, *forward_);
      sums_ = summing != nullptr;
      if (sums_) forward_ = std::move(summing);
    }
    std::size_t workspace = forward_->workspace_bytes();
    if (spec.training) {
      filter_ = choose_convolution(context, spec, channels, ConvolutionPass::backward_filter);
      workspace = std::max(workspace, filter_->workspace_bytes());
      if (spec.input_gradient) {
        data_ = choose_convolution(context, spec, channels, ConvolutionPass::backward_data);
        workspace = std::max(workspace, data_->workspace_bytes());
      }
      if (is_extended())
        gradient_at_ = scratch_.add(kernel_elements() * element_bytes(precision()));
      if (spec.bias) partials_at_ = scratch_.add(partial_bytes(outputs_));
    }
    workspace_at_ = scratch_.add(workspace);
    if (is_extended()) kernel_at_ = scratch_.add(kernel_elements() * element_bytes(precision()));
  }

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = spec_.relu,
            .adds_input_gradient = true,
            .skips_frozen = true,
            .input_channels = is_extended() ? spec_.window.channels : 0,
            .narrow_gradient = narrow_gradient(),
            .scratch_bytes = scratch_.bytes(),
            .statistics_bytes = sums_ ? channel_sums_bytes(spec_.filters) : 0};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    ConvolutionArrays arrays{o.inputs[0].data(), kernel(o), o.output.data()};
    if (sums_) arrays.sums = channel_sums(o.statistics.data(), spec_.filters);
    forward_->run(arrays, part_of(o.scratch, workspace_at_));
    add_bias(o.output, spec_.bias ? o.weights[1] : TensorView(), spec_.relu, context_.native());
  }

  void backward(const Operands& o, const PassContext& pass) override {
    if (spec_.relu)
      relu_backward(o.output, o.output_gradient, o.output_gradient, context_.native());
    if (!o.parameter_gradients[0].empty()) write_parameter_gradients(o, pass);
    if (o.input_gradients[0].empty()) return;
    LOCKSTEP_CHECK_OP(o.add_input_gradient, ==, spec_.adds_input_gradient);
    data_->run({o.input_gradients[0].data(), o.weights[0].data(), o.output_gradient.data()},
               part_of(o.scratch, workspace_at_));
  }

 private:
  void write_parameter_gradients(const Operands& o, const PassContext& pass) {
    if (spec_.bias)
      column_sums(o.output_gradient, outputs_, part_of(o.scratch, partials_at_),
                  o.parameter_gradients[1].data(), context_.native());
    // Parameter gradients are float32, but cuDNN writes the type that it reads: 16 bits.
    const TensorView kernel_gradient = o.parameter_gradients[0];
    const TensorView written = narrow_gradient() ? o.narrow_gradient
                               : is_extended()   ? TensorView(part_of(o.scratch, gradient_at_),
                                                              kernel_elements(), precision())
                                                 : kernel_gradient;
    filter_->run({o.inputs[0].data(), written.data(), o.output_gradient.data()},
                 part_of(o.scratch, workspace_at_));
    if (is_extended())
      convert_channels(written, spec_.window.channels, kernel_gradient, channels_,
                       context_.native());
    end_part(pass, Part::weight_gradient);
  }

  Precision precision() const { return context_.options().precision; }
  std::size_t kernel_elements() const {
    const WindowGeometry& w = spec_.window;
    return static_cast<std::size_t>(spec_.filters * w.kernel_height * w.kernel_width * w.channels /
                                    spec_.groups);
  }

  bool narrow_gradient() const { return precision() != Precision::float32 && !is_extended(); }

  bool is_extended() const { return channels_ != spec_.window.channels; }

  void* kernel(const Operands& o) {
    if (!is_extended()) return o.weights[0].data();
    const TensorView extended(part_of(o.scratch, kernel_at_), kernel_elements(), precision());
    convert_channels(o.weights[0], channels_, extended, spec_.window.channels, context_.native());
    return extended.data();
  }

  Context& context_;
  Conv2DSpec spec_;
  std::int64_t channels_;
  ChannelLayout outputs_;
  std::unique_ptr<ConvolutionEngine> forward_;
  bool sums_ = false;  // whether forward_ also sums its output
  std::unique_ptr<ConvolutionEngine> filter_;
  std::unique_ptr<ConvolutionEngine> data_;
  ScratchPlan scratch_;
  std::size_t gradient_at_ = 0;
  std::size_t partials_at_ = 0;
  std::size_t workspace_at_ = 0;
  std::size_t kernel_at_ = 0;
};

// The convolution `spec` with its passes exchanged: forward is its backward pass of the data.
class TransposedOperation final : public Operation {
 public:
  TransposedOperation(Context& context, const Conv2DSpec& spec)
      : context_(context),
        spec_(spec),
        outputs_(channel_layout(spec.batch * spec.window.height * spec.window.width,
                                spec.window.channels, context.options().precision,
                                context.multiprocessors())),
        forward_(choose_convolution(context, spec, spec.window.channels,
                                    ConvolutionPass::backward_data)) {
    std::size_t workspace = forward_->workspace_bytes();
    if (spec.training) {
      filter_ =
          choose_convolution(context, spec, spec.window.channels, ConvolutionPass::backward_filter);
      workspace = std::max(workspace, filter_->workspace_bytes());
      if (spec.input_gradient) {
        data_ = choose_convolution(context, spec, spec.window.channels, ConvolutionPass::forward);
        workspace = std::max(workspace, data_->workspace_bytes());
      }
      if (spec.bias) partials_at_ = scratch_.add(partial_bytes(outputs_));
    }
    workspace_at_ = scratch_.add(workspace);
  }

  Needs needs() const override {
    return {.output_in_backward = false,
            .skips_frozen = true,
            .narrow_gradient = narrow_gradient(),
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    forward_->run({o.output.data(), o.weights[0].data(), o.inputs[0].data()},
                  part_of(o.scratch, workspace_at_));
    if (spec_.bias) add_bias(o.output, o.weights[1], false, context_.native());
  }

  void backward(const Operands& o, const PassContext& pass) override {
    if (!o.parameter_gradients[0].empty()) {
      if (spec_.bias)
        column_sums(o.output_gradient, outputs_, part_of(o.scratch, partials_at_),
                    o.parameter_gradients[1].data(), context_.native());
      const TensorView kernel_gradient = o.parameter_gradients[0];
      const TensorView written = narrow_gradient() ? o.narrow_gradient : kernel_gradient;
      filter_->run({o.output_gradient.data(), written.data(), o.inputs[0].data()},
                   part_of(o.scratch, workspace_at_));
      end_part(pass, Part::weight_gradient);
    }
    if (o.input_gradients[0].empty()) return;
    data_->run({o.output_gradient.data(), o.weights[0].data(), o.input_gradients[0].data()},
               part_of(o.scratch, workspace_at_));
  }

 private:
  bool narrow_gradient() const { return context_.options().precision != Precision::float32; }

  Context& context_;
  Conv2DSpec spec_;
  ChannelLayout outputs_;
  std::unique_ptr<ConvolutionEngine> forward_;
  std::unique_ptr<ConvolutionEngine> filter_;
  std::unique_ptr<ConvolutionEngine> data_;
  ScratchPlan scratch_;
  std::size_t partials_at_ = 0;
  std::size_t workspace_at_ = 0;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Conv2D::compile_gpu(const CompileContext& context,
                                               cuda::Context& gpu) const {
  return std::make_unique<cuda::Conv2DOperation>(gpu, spec(context));
}

std::unique_ptr<Operation> Conv2DTranspose::compile_gpu(const CompileContext& context,
                                                        cuda::Context& gpu) const {
  return std::make_unique<cuda::TransposedOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
