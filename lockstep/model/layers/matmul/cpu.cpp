#include <algorithm>

#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/matmul/matmul.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Matrices [rows, columns], or those that are stored as [columns, rows]. With an extent of 1 both
// are the same memory, and oneDNN cannot compute the second form.
memory::desc matrices(memory::data_type type, std::int64_t count, std::int64_t rows,
                      std::int64_t columns, bool is_transposed) {
  return {{count, rows, columns},
          type,
          is_transposed && rows > 1 && columns > 1 ? memory::dims{rows * columns, 1, rows}
                                                   : memory::dims{rows * columns, columns, 1}};
}

class MatMulOperation final : public Operation {
 public:
  MatMulOperation(Context& context, const MatMulSpec& spec) {
    const auto array = [&](std::int64_t rows, std::int64_t columns, bool is_transposed) {
      return matrices(context.type, spec.products, rows, columns, is_transposed);
    };
    const auto& [products, m, k, n, transpose_b, training] = spec;
    product_ = product(context, array(m, k, false), array(k, n, transpose_b), array(m, n, false));
    if (!training) return;
    a_gradient_ =
        product(context, array(m, n, false), array(n, k, !transpose_b), array(m, k, false));
    b_gradient_ = product(context, array(k, m, true), array(m, n, false), array(k, n, transpose_b));
  }

  Needs needs() const override {
    return {.output_in_backward = false,
            .scratch_bytes = std::max({product_.scratch_bytes(), a_gradient_.scratch_bytes(),
                                       b_gradient_.scratch_bytes()})};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    run(product_, t.inputs[0], t.inputs[1], t.output, t.scratch);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (!t.input_gradients[0].empty())
      run(a_gradient_, t.output_gradient, t.inputs[1], t.input_gradients[0], t.scratch);
    if (!t.input_gradients[1].empty())
      run(b_gradient_, t.inputs[0], t.output_gradient, t.input_gradients[1], t.scratch);
  }

 private:
  static Primitive product(Context& context, const memory::desc& left, const memory::desc& right,
                           const memory::desc& result) {
    const auto description =
        describe_product(context.engine, {left, right, result}, user_scratchpad());
    return {context,
            dnnl::matmul(description),
            {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}},
            description.scratchpad_desc()};
  }

  static void run(Primitive& primitive, const TensorView& left, const TensorView& right,
                  const TensorView& result, std::span<std::byte> scratch) {
    primitive.place(DNNL_ARG_SRC, left);
    primitive.place(DNNL_ARG_WEIGHTS, right);
    primitive.place(DNNL_ARG_DST, result);
    primitive.run(scratch);
  }

  Primitive product_;
  Primitive a_gradient_;
  Primitive b_gradient_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> MatMul::compile_cpu(const CompileContext& context,
                                               cpu::Context& cpu) const {
  return std::make_unique<cpu::MatMulOperation>(cpu, spec(context));
}

}  // namespace lockstep::inline v0::model
