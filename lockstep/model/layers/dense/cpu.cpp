#include <Eigen/Core>
#include <algorithm>

#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/cpu/relu.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/dense/dense.h"
#include "lockstep/model/layers/dense/row_loss.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Weights keep their layout [units, inputs]: at the batch sizes of one replica, copying to a
// blocked layout costs as much time as it saves in the products.
class DenseOperation final : public Operation {
 public:
  DenseOperation(Context& context, const DenseSpec& spec) : spec_(spec) {
    const memory::desc source = matrix(context.type, spec.rows, spec.inputs);
    const memory::desc weights = matrix(context.type, spec.units, spec.inputs);
    const memory::desc weights_gradient = matrix(memory::data_type::f32, spec.units, spec.inputs);
    const memory::desc bias =
        spec.bias ? vector(memory::data_type::f32, spec.units) : memory::desc();
    const memory::desc target = matrix(context.type, spec.rows, spec.units);

    const auto kind =
        spec.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const InnerProductArrays arrays = {source, weights, bias, target};
    const auto forward = describe_forward(context.engine, kind, arrays, user_scratchpad());
    std::vector<std::pair<int, memory::desc>> arguments = {
        {DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, target}};
    if (spec.bias) arguments.emplace_back(DNNL_ARG_BIAS, bias);
    forward_ = Primitive(context, dnnl::inner_product_forward(forward), arguments,
                         forward.scratchpad_desc());
    if (!spec.training) return;

    const auto gradient = describe_backward_weights(
        context.engine, {source, weights_gradient, bias, target}, user_scratchpad(), forward);
    arguments = {{DNNL_ARG_SRC, source},
                 {DNNL_ARG_DIFF_WEIGHTS, weights_gradient},
                 {DNNL_ARG_DIFF_DST, target}};
    if (spec.bias) arguments.emplace_back(DNNL_ARG_DIFF_BIAS, bias);
    backward_weights_ = Primitive(context, dnnl::inner_product_backward_weights(gradient),
                                  arguments, gradient.scratchpad_desc());
    if (spec.loss_rows > 0) add_weights_ = sum_of_products(context);

    if (!spec.input_gradient) return;
    const auto data = describe_backward_data(context.engine, arrays, user_scratchpad(), forward);
    backward_data_ = Primitive(
        context, dnnl::inner_product_backward_data(data),
        {{DNNL_ARG_DIFF_SRC, source}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_DST, target}},
        data.scratchpad_desc());
  }

  Needs needs() const override {
    return {
        .inputs_in_backward = true,
        .output_in_backward = spec_.relu,
        .skips_frozen = true,
        .scratch_bytes = std::max({forward_.scratch_bytes(), backward_weights_.scratch_bytes(),
                                   add_weights_.scratch_bytes(), backward_data_.scratch_bytes()})};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    forward_.place(DNNL_ARG_SRC, t.inputs[0]);
    forward_.place(DNNL_ARG_WEIGHTS, t.weights[0]);
    if (spec_.bias) forward_.place(DNNL_ARG_BIAS, t.parameters[1]);
    forward_.place(DNNL_ARG_DST, t.output);
    forward_.run(t.scratch);
    if (spec_.relu) relu(t.output, t.output);
  }

  void backward(const Operands& t, const PassContext& pass) override {
    if (spec_.relu) relu_gradient(t.output, t.output_gradient, t.output_gradient);
    if (!t.parameter_gradients[0].empty() && t.add_parameter_gradient) {
      add_to_gradients(t);
    } else if (!t.parameter_gradients[0].empty()) {
      backward_weights_.place(DNNL_ARG_SRC, t.inputs[0]);
      backward_weights_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
      backward_weights_.place(DNNL_ARG_DIFF_WEIGHTS, t.parameter_gradients[0]);
      if (spec_.bias) backward_weights_.place(DNNL_ARG_DIFF_BIAS, t.parameter_gradients[1]);
      backward_weights_.run(t.scratch);
      end_part(pass, Part::weight_gradient);
    }

    if (t.input_gradients[0].empty()) return;
    backward_data_.place(DNNL_ARG_WEIGHTS, t.weights[0]);
    backward_data_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
    backward_data_.place(DNNL_ARG_DIFF_SRC, t.input_gradients[0]);
    backward_data_.run(t.scratch);
  }

 private:
  // weights += transposed target x source
  Primitive sum_of_products(Context& context) const {
    const memory::desc target({spec_.units, spec_.rows}, context.type, memory::format_tag::ba);
    const memory::desc source = matrix(context.type, spec_.rows, spec_.inputs);
    const memory::desc weights = matrix(memory::data_type::f32, spec_.units, spec_.inputs);
    dnnl::post_ops sum;
    sum.append_sum();
    dnnl::primitive_attr attributes = user_scratchpad();
    attributes.set_post_ops(sum);
    const auto product = describe_product(context.engine, {target, source, weights}, attributes);
    return Primitive(context, dnnl::matmul(product),
                     {{DNNL_ARG_SRC, target}, {DNNL_ARG_WEIGHTS, source}, {DNNL_ARG_DST, weights}},
                     product.scratchpad_desc());
  }

  void add_to_gradients(const Operands& t) {
    add_weights_.place(DNNL_ARG_SRC, t.output_gradient);
    add_weights_.place(DNNL_ARG_WEIGHTS, t.inputs[0]);
    add_weights_.place(DNNL_ARG_DST, t.parameter_gradients[0]);
    add_weights_.run(t.scratch);
    if (!spec_.bias) return;
    if (t.output_gradient.type() == Precision::float32)
      add_rows<float>(t.output_gradient, t.parameter_gradients[1]);
    else
      add_rows<Eigen::bfloat16>(t.output_gradient, t.parameter_gradients[1]);
  }

  template <typename T>
  void add_rows(const TensorView& rows, std::span<float> sums) const {
    const auto* row = static_cast<const T*>(rows.data());
    for (std::int64_t i = 0; i < spec_.rows; ++i, row += spec_.units)
      add_to(sums.data(), row, spec_.units);
  }

  DenseSpec spec_;
  Primitive forward_;
  Primitive backward_weights_;
  Primitive add_weights_;  // with loss_rows
  Primitive backward_data_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> FullyConnected::compile_cpu(const CompileContext& context,
                                                       cpu::Context& cpu) const {
  const DenseSpec dense = spec(context);
  if (dense.loss_rows > 0)
    return std::make_unique<DenseLossOperation<cpu::DenseOperation>>(cpu, dense);
  return std::make_unique<cpu::DenseOperation>(cpu, dense);
}

}  // namespace lockstep::inline v0::model
