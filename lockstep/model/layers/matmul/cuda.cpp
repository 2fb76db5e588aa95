#include <algorithm>
#include <optional>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/cuda/matrix_product.h"
#include "lockstep/model/layers/matmul/matmul.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class MatMulOperation final : public Operation {
 public:
  MatMulOperation(Context& context, const MatMulSpec& spec)
      : spec_(spec),
        product_(context, {.rows = spec.rows,
                           .inner = spec.inner,
                           .columns = spec.columns,
                           .right_is_transposed = spec.transpose_b,
                           .products = spec.products}) {
    std::size_t workspace = product_.workspace_bytes();
    if (spec.training) {
      a_gradient_.emplace(context, ProductSpec{.rows = spec.rows,
                                               .inner = spec.columns,
                                               .columns = spec.inner,
                                               .right_is_transposed = !spec.transpose_b,
                                               .products = spec.products});
      // The gradient is laid out as the second matrices are.
      const ProductSpec stored = spec.transpose_b ? ProductSpec{.rows = spec.columns,
                                                                .inner = spec.rows,
                                                                .columns = spec.inner,
                                                                .left_is_transposed = true,
                                                                .products = spec.products}
                                                  : ProductSpec{.rows = spec.inner,
                                                                .inner = spec.rows,
                                                                .columns = spec.columns,
                                                                .left_is_transposed = true,
                                                                .products = spec.products};
      b_gradient_.emplace(context, stored);
      workspace =
          std::max({workspace, a_gradient_->workspace_bytes(), b_gradient_->workspace_bytes()});
    }
    workspace_at_ = scratch_.add(workspace);
  }

  Needs needs() const override {
    return {.output_in_backward = false, .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    product_.run(o.inputs[0].data(), o.inputs[1].data(), nullptr, part_of(o.scratch, workspace_at_),
                 o.output.data());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    void* const workspace = part_of(o.scratch, workspace_at_);
    if (!o.input_gradients[0].empty())
      a_gradient_->run(o.output_gradient.data(), o.inputs[1].data(), nullptr, workspace,
                       o.input_gradients[0].data());
    if (o.input_gradients[1].empty()) return;
    const bool swaps = spec_.transpose_b;
    const TensorView& left = swaps ? o.output_gradient : o.inputs[0];
    const TensorView& right = swaps ? o.inputs[0] : o.output_gradient;
    b_gradient_->run(left.data(), right.data(), nullptr, workspace, o.input_gradients[1].data());
  }

 private:
  MatMulSpec spec_;
  MatrixProduct product_;
  std::optional<MatrixProduct> a_gradient_;
  std::optional<MatrixProduct> b_gradient_;
  ScratchPlan scratch_;
  std::size_t workspace_at_ = 0;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> MatMul::compile_gpu(const CompileContext& context,
                                               cuda::Context& gpu) const {
  return std::make_unique<cuda::MatMulOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
