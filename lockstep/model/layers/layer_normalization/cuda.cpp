#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/layer_normalization/kernels.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class RowNormalizationOperation final : public Operation {
 public:
  RowNormalizationOperation(Context& context, const RowNormalizationSpec& spec)
      : context_(context),
        spec_(spec),
        layout_(channel_layout(spec.rows, spec.width, context.options().precision,
                               context.multiprocessors())),
        partials_at_(scratch_.add(spec.training ? partial_bytes(layout_) : 0)) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes =
                spec_.training ? static_cast<std::size_t>(spec_.rows) * sizeof(RowStatistics) : 0,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    normalize_samples(o.inputs[0], spec_, o.parameters[0].data(),
                      spec_.centers ? o.parameters[1].data() : nullptr, o.output, statistics(o),
                      context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.parameter_gradients[0].empty())
      scale_gradients(o.inputs[0], o.output_gradient, statistics(o), layout_,
                      part_of(o.scratch, partials_at_), o.parameter_gradients[0].data(),
                      spec_.centers ? o.parameter_gradients[1].data() : nullptr, context_.native());
    if (!o.input_gradients[0].empty())
      sample_gradients(o.inputs[0], o.output_gradient, statistics(o), spec_, o.parameters[0].data(),
                       o.input_gradients[0], context_.native());
  }

 private:
  // Null in inference.
  static RowStatistics* statistics(const Operands& o) {
    return reinterpret_cast<RowStatistics*>(o.saved.data());
  }

  Context& context_;
  RowNormalizationSpec spec_;
  ChannelLayout layout_;
  ScratchPlan scratch_;
  std::size_t partials_at_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> RowNormalization::compile_gpu(const CompileContext& context,
                                                         cuda::Context& gpu) const {
  return std::make_unique<cuda::RowNormalizationOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
