#include <algorithm>
#include <optional>

#include "lockstep/model/cuda/bias.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/elementwise.h"
#include "lockstep/model/cuda/matrix_product.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/dense/row_loss.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class DenseOperation final : public Operation {
 public:
  DenseOperation(Context& context, const DenseSpec& spec)
      : context_(context),
        spec_(spec),
        forward_(context, {.rows = spec.rows,
                           .inner = spec.inputs,
                           .columns = spec.units,
                           .right_is_transposed = true,
                           .bias = spec.bias,
                           .relu = spec.relu,
                           .result_stride = spec.row_stride}),
        outputs_(channel_layout(spec.rows, spec.units, context.options().precision,
                                context.multiprocessors())) {
    std::size_t workspace = forward_.workspace_bytes();
    if (spec.training) {
      weights_.emplace(context, ProductSpec{.rows = spec.units,
                                            .inner = spec.rows,
                                            .columns = spec.inputs,
                                            .left_is_transposed = true,
                                            .result_is_float32 = true,
                                            .left_stride = spec.row_stride});
      workspace = std::max(workspace, weights_->workspace_bytes());
      if (spec.input_gradient) {
        data_.emplace(context, ProductSpec{.rows = spec.rows,
                                           .inner = spec.units,
                                           .columns = spec.inputs,
                                           .left_stride = spec.row_stride});
        workspace = std::max(workspace, data_->workspace_bytes());
      }
      if (spec.bias) partials_at_ = scratch_.add(partial_bytes(outputs_));
      if (spec.bias && spec.loss_rows > 0)
        sums_at_ = scratch_.add(static_cast<std::size_t>(spec.units) * sizeof(float));
    }
    workspace_at_ = scratch_.add(workspace);
  }

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = spec_.relu,
            .skips_frozen = true,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    forward_.run(o.inputs[0].data(), o.weights[0].data(),
                 spec_.bias ? o.weights[1].data() : nullptr, part_of(o.scratch, workspace_at_),
                 o.output.data());
  }

  void backward(const Operands& o, const PassContext& pass) override {
    if (spec_.relu)
      relu_backward(o.output, o.output_gradient, o.output_gradient, context_.native());
    if (!o.parameter_gradients[0].empty()) {
      if (spec_.bias) bias_gradient(o);
      weights_->run(o.output_gradient.data(), o.inputs[0].data(), nullptr,
                    part_of(o.scratch, workspace_at_), o.parameter_gradients[0].data(),
                    o.add_parameter_gradient);
      end_part(pass, Part::weight_gradient);
    }
    if (o.input_gradients[0].empty()) return;
    data_->run(o.output_gradient.data(), o.weights[0].data(), nullptr,
               part_of(o.scratch, workspace_at_), o.input_gradients[0].data());
  }

 private:
  void bias_gradient(const Operands& o) {
    const std::span<float> gradient = o.parameter_gradients[1];
    std::span<float> sums = gradient;
    if (o.add_parameter_gradient)
      sums = {reinterpret_cast<float*>(part_of(o.scratch, sums_at_)), gradient.size()};
    column_sums(o.output_gradient, outputs_, part_of(o.scratch, partials_at_), sums.data(),
                context_.native());
    if (o.add_parameter_gradient) add(gradient, sums, false, gradient, context_.native());
  }

  Context& context_;
  DenseSpec spec_;
  MatrixProduct forward_;
  std::optional<MatrixProduct> weights_;
  std::optional<MatrixProduct> data_;
  ChannelLayout outputs_;
  ScratchPlan scratch_;
  std::size_t partials_at_ = 0;
  std::size_t sums_at_ = 0;  // for an added bias gradient
  std::size_t workspace_at_ = 0;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> FullyConnected::compile_gpu(const CompileContext& context,
                                                       cuda::Context& gpu) const {
  DenseSpec dense = spec(context);
  // Matrix products are faster if each row begins at a multiple of 16 bytes. The sums of a bias's
  // gradient read rows without gaps.
  if (const auto multiple = static_cast<std::int64_t>(16 / element_bytes(gpu.options().precision));
      dense.loss_rows > 0 && !dense.bias)
    dense.row_stride = (dense.units + multiple - 1) / multiple * multiple;
  if (dense.loss_rows > 0)
    return std::make_unique<DenseLossOperation<cuda::DenseOperation>>(gpu, dense);
  return std::make_unique<cuda::DenseOperation>(gpu, dense);
}

}  // namespace lockstep::inline v0::model
