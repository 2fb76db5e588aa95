#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/sequence_pooling/kernels.h"
#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class SequenceMeanOperation final : public Operation {
 public:
  SequenceMeanOperation(Context& context, const SequencePoolingSpec& spec)
      : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.inputs_in_backward = spec_.has_segments, .output_in_backward = false};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    sequence_mean_forward(o.inputs[0], o.indices, spec_, o.output, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.input_gradients[0].empty())
      sequence_mean_backward(o.output_gradient, o.indices, spec_, o.input_gradients[0],
                             context_.native());
  }

 private:
  Context& context_;
  SequencePoolingSpec spec_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> GlobalAveragePooling1D::compile_gpu(const CompileContext& context,
                                                               cuda::Context& gpu) const {
  return std::make_unique<cuda::SequenceMeanOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
