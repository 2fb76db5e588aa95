#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/group_normalization/group_normalization.h"
#include "lockstep/model/layers/group_normalization/kernels.h"

namespace lockstep::inline v0::model::cuda {
namespace {

class GroupNormalizationOperation final : public Operation {
 public:
  GroupNormalizationOperation(Context& context, const GroupNormalizationSpec& spec)
      : context_(context), spec_(spec) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes = spec_.statistics_bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    normalize_groups(o.inputs[0], spec_, gamma(o.parameters), beta(o.parameters), o.output,
                     statistics(o), context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    if (!o.parameter_gradients.empty() && !o.parameter_gradients[0].empty())
      group_scale_gradients(o.inputs[0], o.output_gradient, statistics(o), spec_,
                            gamma(o.parameter_gradients), beta(o.parameter_gradients),
                            context_.native());
    if (!o.input_gradients[0].empty())
      group_input_gradients(o.inputs[0], o.output_gradient, statistics(o), spec_,
                            gamma(o.parameters), o.input_gradients[0], context_.native());
  }

 private:
  // Null if the layer has no such parameter.
  float* gamma(const std::vector<std::span<float>>& arrays) const {
    return spec_.scale ? arrays.front().data() : nullptr;
  }
  float* beta(const std::vector<std::span<float>>& arrays) const {
    return spec_.center ? arrays.back().data() : nullptr;
  }
  // Null in inference.
  static GroupStatistics* statistics(const Operands& o) {
    return o.saved.empty() ? nullptr : reinterpret_cast<GroupStatistics*>(o.saved.data());
  }

  Context& context_;
  GroupNormalizationSpec spec_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> GroupNormalization::compile_gpu(const CompileContext& context,
                                                           cuda::Context& gpu) const {
  return std::make_unique<cuda::GroupNormalizationOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
