#include <Eigen/Core>
#include <algorithm>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/cpu/relu.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/conv_2d/conv_2d.h"
#include "lockstep/model/layers/conv_2d/derived.h"
#include "lockstep/model/layers/conv_2d/direct_gradient.h"
#include "lockstep/model/layers/conv_2d/winograd.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Lockstep's kernels are [filters, height, width, channels / groups]; oneDNN uses the logical order
// [g,] o, i, h, w.
memory::desc stored_kernel(const Conv2DSpec& spec, memory::data_type type) {
  const WindowGeometry& w = spec.window;
  const std::int64_t inputs = w.channels / spec.groups;
  const std::int64_t outputs = spec.filters / spec.groups;
  const std::int64_t row = w.kernel_width * inputs;
  const std::int64_t filter = w.kernel_height * row;
  if (spec.groups == 1)
    return {{outputs, inputs, w.kernel_height, w.kernel_width},
            type,
            memory::dims{filter, 1, row, inputs}};
  return {{spec.groups, outputs, inputs, w.kernel_height, w.kernel_width},
          type,
          memory::dims{outputs * filter, filter, 1, row, inputs}};
}

// The kernel with a layout chosen by oneDNN.
memory::desc kernel_of_any_layout(const Conv2DSpec& spec, memory::data_type type) {
  const WindowGeometry& w = spec.window;
  const std::int64_t inputs = w.channels / spec.groups;
  const std::int64_t outputs = spec.filters / spec.groups;
  if (spec.groups == 1)
    return {{outputs, inputs, w.kernel_height, w.kernel_width}, type, memory::format_tag::any};
  return {{spec.groups, outputs, inputs, w.kernel_height, w.kernel_width},
          type,
          memory::format_tag::any};
}

class Conv2DOperation final : public Operation {
 public:
  Conv2DOperation(Context& context, const Conv2DSpec& spec) : spec_(spec) {
    const WindowGeometry& w = spec.window;
    const memory::desc source = image(context.type, spec.batch, w.channels, w.height, w.width);
    const memory::desc target =
        image(context.type, spec.batch, spec.filters, w.output_height, w.output_width);
    const memory::desc stored = stored_kernel(spec, context.type);
    // Parameter gradients are float32, and so is the bias, which is not an operand of a product.
    const memory::desc stored_gradient = stored_kernel(spec, memory::data_type::f32);
    const memory::desc bias =
        spec.bias ? vector(memory::data_type::f32, spec.filters) : memory::desc();
    const ConvolutionArrays arrays = {source,
                                      kernel_of_any_layout(spec, context.type),
                                      bias,
                                      target,
                                      {w.stride_height, w.stride_width},
                                      {w.dilation_height - 1, w.dilation_width - 1},
                                      {w.pad_top, w.pad_left},
                                      {w.pad_bottom, w.pad_right}};
    const auto forward = describe_forward(
        context.engine,
        spec.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
        arrays, user_scratchpad());
    if (winograd::is_profitable(spec, winograd::Pass::forward, context.type)) {
      winograd_.emplace(context, spec, winograd::Pass::forward);
    } else {
      std::vector<std::pair<int, memory::desc>> arguments = {
          {DNNL_ARG_SRC, source},
          {DNNL_ARG_WEIGHTS, forward.weights_desc()},
          {DNNL_ARG_DST, target}};
      if (spec.bias) arguments.emplace_back(DNNL_ARG_BIAS, bias);
      forward_ = Primitive(context, dnnl::convolution_forward(forward), arguments,
                           forward.scratchpad_desc());
      forward_weights_ = Reorder(context, stored, forward.weights_desc());
    }
    if (!spec.training) return;

    if (winograd::is_profitable(spec, winograd::Pass::kernel_gradient, context.type)) {
      winograd_weights_.emplace(context, spec);
    } else if (DirectKernelGradient::is_profitable(spec, context.type)) {
      direct_weights_.emplace(spec);
    } else {
      ConvolutionArrays gradients = arrays;
      gradients.weights = kernel_of_any_layout(spec, memory::data_type::f32);
      const auto weights =
          describe_backward_weights(context.engine, gradients, user_scratchpad(), forward);
      std::vector<std::pair<int, memory::desc>> arguments = {
          {DNNL_ARG_SRC, source},
          {DNNL_ARG_DIFF_WEIGHTS, weights.diff_weights_desc()},
          {DNNL_ARG_DIFF_DST, target}};
      if (spec.bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, bias);
      backward_weights_ = Primitive(context, dnnl::convolution_backward_weights(weights), arguments,
                                    weights.scratchpad_desc());
      weights_gradient_ = Reorder::from_own(context, weights.diff_weights_desc(), stored_gradient);
    }

    if (!spec.input_gradient) return;
    if (winograd::is_profitable(spec, winograd::Pass::data_gradient, context.type)) {
      winograd_data_.emplace(context, spec, winograd::Pass::data_gradient);
      return;
    }
    const auto data = describe_backward_data(context.engine, arrays, user_scratchpad(), forward);
    backward_data_ = Primitive(context, dnnl::convolution_backward_data(data),
                               {{DNNL_ARG_DIFF_SRC, source},
                                {DNNL_ARG_WEIGHTS, data.weights_desc()},
                                {DNNL_ARG_DIFF_DST, target}},
                               data.scratchpad_desc());
    backward_kernel_ = Reorder(context, stored, data.weights_desc());
  }

  Needs needs() const override {
    const auto scratch = [](const auto& own) { return own ? own->scratch_bytes() : 0; };
    return {.inputs_in_backward = true,
            .output_in_backward = spec_.relu,
            .skips_frozen = true,
            .scratch_bytes = std::max({forward_.scratch_bytes(), backward_weights_.scratch_bytes(),
                                       backward_data_.scratch_bytes(), scratch(winograd_),
                                       scratch(winograd_weights_), scratch(winograd_data_),
                                       scratch(direct_weights_)})};
  }

  std::string_view algorithm(Part part) const override {
    if (part == Part::weight_gradient && direct_weights_) return "direct";
    bool is_winograd = winograd_.has_value();
    if (part == Part::weight_gradient) is_winograd = winograd_weights_.has_value();
    // Without trained parameters, it is the whole backward pass.
    if (part == Part::data_gradient || part == Part::backward)
      is_winograd = winograd_data_.has_value();
    return is_winograd ? "winograd" : "";
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    if (winograd_) {
      const float* const bias = spec_.bias ? t.parameters[1].data() : nullptr;
      winograd_->run(t.inputs[0], t.weights[0], bias, t.output, t.scratch);
      return;
    }
    forward_.place(DNNL_ARG_SRC, t.inputs[0]);
    forward_.place(DNNL_ARG_WEIGHTS, forward_weights_.read(t.weights[0].data()));
    if (spec_.bias) forward_.place(DNNL_ARG_BIAS, t.parameters[1]);
    forward_.place(DNNL_ARG_DST, t.output);
    forward_.run(t.scratch);
    if (spec_.relu) relu(t.output, t.output);
  }

  void backward(const Operands& t, const PassContext& pass) override {
    if (spec_.relu) relu_gradient(t.output, t.output_gradient, t.output_gradient);
    if (!t.parameter_gradients[0].empty()) {
      write_weights_gradient(t);
      end_part(pass, Part::weight_gradient);
    }

    if (t.input_gradients[0].empty()) return;
    if (winograd_data_) {
      winograd_data_->run(t.output_gradient, t.weights[0], nullptr, t.input_gradients[0],
                          t.scratch);
      return;
    }
    backward_data_.place(DNNL_ARG_WEIGHTS, backward_kernel_.read(t.weights[0].data()));
    backward_data_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
    backward_data_.place(DNNL_ARG_DIFF_SRC, t.input_gradients[0]);
    backward_data_.run(t.scratch);
  }

 private:
  void write_weights_gradient(const Operands& t) {
    float* const kernel_gradient = t.parameter_gradients[0].data();
    float* const bias_gradient = spec_.bias ? t.parameter_gradients[1].data() : nullptr;
    if (winograd_weights_) {
      winograd_weights_->run(t.inputs[0], t.output_gradient, kernel_gradient, bias_gradient,
                             t.scratch);
      return;
    }
    if (direct_weights_) {
      direct_weights_->run(t.inputs[0].as<float>().data(), t.output_gradient.as<float>().data(),
                           kernel_gradient, bias_gradient, t.scratch);
      return;
    }
    backward_weights_.place(DNNL_ARG_SRC, t.inputs[0]);
    backward_weights_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
    backward_weights_.place(DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.target_of(kernel_gradient));
    if (spec_.bias) backward_weights_.place(DNNL_ARG_DIFF_BIAS, t.parameter_gradients[1]);
    backward_weights_.run(t.scratch);
    weights_gradient_.write(kernel_gradient);
  }

  Conv2DSpec spec_;
  // For each pass either a primitive, with its reorder, or one of our own algorithms.
  Primitive forward_;
  Primitive backward_weights_;
  Primitive backward_data_;
  Reorder forward_weights_;
  Reorder backward_kernel_;
  Reorder weights_gradient_;
  std::optional<winograd::Product> winograd_;
  std::optional<winograd::KernelGradient> winograd_weights_;
  std::optional<winograd::Product> winograd_data_;
  std::optional<DirectKernelGradient> direct_weights_;
};

// The convolution `spec` with its passes exchanged: forward is its backward pass of the data.
class TransposedOperation final : public Operation {
 public:
  TransposedOperation(Context& context, const Conv2DSpec& spec) : spec_(spec) {
    const WindowGeometry& w = spec.window;
    const memory::desc large = image(context.type, spec.batch, w.channels, w.height, w.width);
    const memory::desc small =
        image(context.type, spec.batch, spec.filters, w.output_height, w.output_width);
    const memory::desc stored = stored_kernel(spec, context.type);
    const ConvolutionArrays arrays = {large,
                                      kernel_of_any_layout(spec, context.type),
                                      memory::desc(),
                                      small,
                                      {w.stride_height, w.stride_width},
                                      {w.dilation_height - 1, w.dilation_width - 1},
                                      {w.pad_top, w.pad_left},
                                      {w.pad_bottom, w.pad_right}};
    const auto convolution = describe_forward(context.engine, dnnl::prop_kind::forward_training,
                                              arrays, user_scratchpad());
    const auto data =
        describe_backward_data(context.engine, arrays, user_scratchpad(), convolution);
    forward_ = Primitive(context, dnnl::convolution_backward_data(data),
                         {{DNNL_ARG_DIFF_SRC, large},
                          {DNNL_ARG_WEIGHTS, data.weights_desc()},
                          {DNNL_ARG_DIFF_DST, small}},
                         data.scratchpad_desc());
    forward_weights_ = Reorder(context, stored, data.weights_desc());
    if (!spec.training) return;

    ConvolutionArrays gradients = arrays;
    gradients.weights = kernel_of_any_layout(spec, memory::data_type::f32);
    const auto weights =
        describe_backward_weights(context.engine, gradients, user_scratchpad(), convolution);
    backward_weights_ = Primitive(context, dnnl::convolution_backward_weights(weights),
                                  {{DNNL_ARG_SRC, large},
                                   {DNNL_ARG_DIFF_WEIGHTS, weights.diff_weights_desc()},
                                   {DNNL_ARG_DIFF_DST, small}},
                                  weights.scratchpad_desc());
    weights_gradient_ = Reorder::from_own(context, weights.diff_weights_desc(),
                                          stored_kernel(spec, memory::data_type::f32));
    if (!spec.input_gradient) return;
    backward_data_ = Primitive(context, dnnl::convolution_forward(convolution),
                               {{DNNL_ARG_SRC, large},
                                {DNNL_ARG_WEIGHTS, convolution.weights_desc()},
                                {DNNL_ARG_DST, small}},
                               convolution.scratchpad_desc());
    backward_kernel_ = Reorder(context, stored, convolution.weights_desc());
  }

  Needs needs() const override {
    return {.output_in_backward = false,
            .skips_frozen = true,
            .scratch_bytes = std::max({forward_.scratch_bytes(), backward_weights_.scratch_bytes(),
                                       backward_data_.scratch_bytes()})};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    forward_.place(DNNL_ARG_DIFF_DST, t.inputs[0]);
    forward_.place(DNNL_ARG_WEIGHTS, forward_weights_.read(t.weights[0].data()));
    forward_.place(DNNL_ARG_DIFF_SRC, t.output);
    forward_.run(t.scratch);
    if (!spec_.bias) return;
    const Row bias(t.parameters[1].data(), spec_.window.channels);
    with_rows(t.output, [&]<typename T>(Rows<T> rows) {
      if constexpr (std::is_same_v<T, float>) {
        rows.rowwise() += bias;
      } else {
        Eigen::ArrayXf wide(rows.cols());
        for (Eigen::Index i = 0; i < rows.rows(); ++i) {
          T* const row = rows.row(i).data();
          assign(widened(row, rows.cols(), wide.data()) + bias.transpose(), row, rows.cols(),
                 wide.data());
        }
      }
    });
  }

  void backward(const Operands& t, const PassContext& pass) override {
    if (!t.parameter_gradients[0].empty()) {
      float* kernel_gradient = t.parameter_gradients[0].data();
      backward_weights_.place(DNNL_ARG_SRC, t.output_gradient);
      backward_weights_.place(DNNL_ARG_DIFF_DST, t.inputs[0]);
      backward_weights_.place(DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.target_of(kernel_gradient));
      backward_weights_.run(t.scratch);
      weights_gradient_.write(kernel_gradient);
      if (spec_.bias)
        with_rows(t.output_gradient, [&]<typename T>(Rows<T> rows) {
          Row sums(t.parameter_gradients[1].data(), rows.cols());
          if constexpr (std::is_same_v<T, float>) {
            sums = rows.colwise().sum();
          } else {
            sums.setZero();
            for (Eigen::Index i = 0; i < rows.rows(); ++i)
              add_to(sums.data(), rows.row(i).data(), rows.cols());
          }
        });
      end_part(pass, Part::weight_gradient);
    }

    if (t.input_gradients[0].empty()) return;
    backward_data_.place(DNNL_ARG_WEIGHTS, backward_kernel_.read(t.weights[0].data()));
    backward_data_.place(DNNL_ARG_SRC, t.output_gradient);
    backward_data_.place(DNNL_ARG_DST, t.input_gradients[0]);
    backward_data_.run(t.scratch);
  }

 private:
  using Row = Eigen::Map<Eigen::Array<float, 1, Eigen::Dynamic>>;
  template <typename T>
  using Rows = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

  /// Calls use(rows) with a row for each pixel of the large images.
  template <typename Use>
  void with_rows(const TensorView& images, const Use& use) const {
    const auto columns = static_cast<Eigen::Index>(spec_.window.channels);
    const auto rows = static_cast<Eigen::Index>(images.size()) / columns;
    if (images.type() == Precision::float32)
      use(Rows<float>(static_cast<float*>(images.data()), rows, columns));
    else
      use(Rows<Eigen::bfloat16>(static_cast<Eigen::bfloat16*>(images.data()), rows, columns));
  }

  Conv2DSpec spec_;
  Primitive forward_;
  Primitive backward_weights_;
  Primitive backward_data_;
  Reorder forward_weights_;
  Reorder backward_kernel_;
  Reorder weights_gradient_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Conv2D::compile_cpu(const CompileContext& context,
                                               cpu::Context& cpu) const {
  return std::make_unique<cpu::Conv2DOperation>(cpu, spec(context));
}

std::unique_ptr<Operation> Conv2DTranspose::compile_cpu(const CompileContext& context,
                                                        cpu::Context& cpu) const {
  return std::make_unique<cpu::TransposedOperation>(cpu, spec(context));
}

}  // namespace lockstep::inline v0::model
