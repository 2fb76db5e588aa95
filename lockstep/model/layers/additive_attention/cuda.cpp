#include <algorithm>

#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/additive_attention/additive_attention.h"
#include "lockstep/model/layers/additive_attention/kernels.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class AdditiveAttentionOperation final : public Operation {
 public:
  AdditiveAttentionOperation(Context& context, const AdditiveAttentionSpec& spec)
      : context_(context),
        spec_(spec),
        weight_bytes_(bytes_of_rows(spec.keys)),
        scores_at_(scratch_.add(weight_bytes_)),
        partials_at_(scratch_.add(spec.training ? bytes_of_rows(spec.units) : 0)) {}

  Needs needs() const override {
    return {.output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes = spec_.training ? weight_bytes_ : 0,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    attend_additively(arrays(o), spec_, context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    AdditiveAttentionArrays all = arrays(o);
    all.output_gradient = o.output_gradient;
    std::copy_n(o.input_gradients.begin(), all.gradients.size(), all.gradients.begin());
    all.scale_gradient = o.parameter_gradients[0].data();
    if (all.scale_gradient == nullptr && std::ranges::all_of(all.gradients, &TensorView::empty))
      return;
    all.score_gradients = reinterpret_cast<float*>(part_of(o.scratch, scores_at_));
    all.scale_partials = reinterpret_cast<float*>(part_of(o.scratch, partials_at_));
    additive_attention_gradients(all, spec_, context_.native());
  }

 private:
  std::size_t bytes_of_rows(std::int64_t columns) const {
    return static_cast<std::size_t>(spec_.batch * spec_.queries * columns) * sizeof(float);
  }

  // Without training, the weights are in scratch memory.
  AdditiveAttentionArrays arrays(const Operands& o) const {
    AdditiveAttentionArrays all;
    std::copy_n(o.inputs.begin(), all.inputs.size(), all.inputs.begin());
    all.segments = o.indices.data();
    all.scale = o.parameters[0].data();
    all.weights = spec_.training ? reinterpret_cast<float*>(o.saved.data())
                                 : reinterpret_cast<float*>(part_of(o.scratch, scores_at_));
    all.output = o.output;
    return all;
  }

  Context& context_;
  AdditiveAttentionSpec spec_;
  ScratchPlan scratch_;
  std::size_t weight_bytes_;
  std::size_t scores_at_;
  std::size_t partials_at_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> AdditiveAttention::compile_gpu(const CompileContext& context,
                                                          cuda::Context& gpu) const {
  return std::make_unique<cuda::AdditiveAttentionOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
