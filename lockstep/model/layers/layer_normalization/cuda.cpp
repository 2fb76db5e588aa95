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
    return {.inputs_in_backward = spec_.reads_input(),
            .output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes = spec_.statistics_bytes(),
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    normalize_samples(o.inputs[0], spec_, gamma(arrays(o)), beta(arrays(o)), o.output,
                      statistics(o), context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    const TensorView& read = spec_.reads_input() ? o.inputs[0] : o.output_gradient;
    if (spec_.trains && !o.parameter_gradients[0].empty())
      scale_gradients(read, o.output_gradient, statistics(o), layout_,
                      part_of(o.scratch, partials_at_), gamma(o.parameter_gradients),
                      beta(o.parameter_gradients), context_.native());
    if (!o.input_gradients[0].empty())
      sample_gradients(read, o.output_gradient, statistics(o), spec_, gamma(arrays(o)),
                       o.input_gradients[0], context_.native());
  }

 private:
  const std::vector<std::span<float>>& arrays(const Operands& o) const {
    return spec_.trains ? o.parameters : o.buffers;
  }
  // Null if the layer has no such parameter.
  float* gamma(const std::vector<std::span<float>>& arrays) const {
    return spec_.scales ? arrays.front().data() : nullptr;
  }
  float* beta(const std::vector<std::span<float>>& arrays) const {
    return spec_.shifts ? arrays.back().data() : nullptr;
  }
  // Null in inference, and without a normalization.
  static RowStatistics* statistics(const Operands& o) {
    return o.saved.empty() ? nullptr : reinterpret_cast<RowStatistics*>(o.saved.data());
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
