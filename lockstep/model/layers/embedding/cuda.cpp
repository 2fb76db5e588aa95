#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/embedding/embedding.h"
#include "lockstep/model/layers/embedding/kernels.h"

namespace lockstep::model::cuda {
namespace {

class EmbeddingOperation final : public Operation {
 public:
  EmbeddingOperation(Context& context, const EmbeddingSpec& spec)
      : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.output_in_backward = false,
            .scratch_bytes = spec_.training ? sum_rows_bytes(spec_.count) : 0};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    gather_rows(o.weights[0], o.indices, spec_.dimension, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    sum_rows(o.output_gradient, o.indices, spec_.dimension, o.parameter_gradients[0],
             o.scratch.data(), context_.native());
  }

 private:
  Context& context_;
  EmbeddingSpec spec_;
};

}  // namespace
}  // namespace lockstep::model::cuda

namespace lockstep::model {

std::unique_ptr<Operation> Embedding::compile_gpu(const CompileContext& context,
                                                  cuda::Context& gpu) const {
  return std::make_unique<cuda::EmbeddingOperation>(gpu, spec(context));
}

}  // namespace lockstep::model
