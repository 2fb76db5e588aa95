#include <algorithm>

#include "lockstep/model/cpu/descriptors.h"
#include "lockstep/model/cpu/operations.h"

namespace lockstep::model::cpu {
namespace {

constexpr std::size_t round_up(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Saved from forward to backward: batch mean, batch variance, and the mask of a fused ReLU.
class BatchNormalizationOperation final : public Operation {
 public:
  BatchNormalizationOperation(OneDnn& dnn, const BatchNormalizationSpec& spec)
      : spec_(spec), element_bytes_(memory::data_type_size(dnn.type)) {
    const memory::desc array = image(dnn.type, spec.rows, spec.channels, 1, 1);
    const memory::desc channels = vector(memory::data_type::f32, spec.channels);
    auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
    if (spec.relu) flags |= dnnl::normalization_flags::fuse_norm_relu;
    if (!spec.training) flags |= dnnl::normalization_flags::use_global_stats;
    const auto kind = spec.training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;

    const BatchNormalizationArrays arrays = {array, spec.epsilon, flags};
    const auto forward = describe_forward(dnn.engine, kind, arrays, user_scratchpad());
    const memory::desc workspace = forward.workspace_desc();
    workspace_bytes_ = workspace.get_size();
    std::vector<std::pair<int, memory::desc>> arguments = {{DNNL_ARG_SRC, array},      {DNNL_ARG_DST, array},
                                                           {DNNL_ARG_MEAN, channels},  {DNNL_ARG_VARIANCE, channels},
                                                           {DNNL_ARG_SCALE, channels}, {DNNL_ARG_SHIFT, channels}};
    if (workspace_bytes_ > 0) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace);
    forward_ = Primitive(dnn, dnnl::batch_normalization_forward(forward), arguments, forward.scratchpad_desc());
    if (!spec.training) return;

    const auto backward = describe_backward(dnn.engine, arrays, user_scratchpad(), forward);
    arguments = {{DNNL_ARG_SRC, array},           {DNNL_ARG_MEAN, channels},      {DNNL_ARG_VARIANCE, channels},
                 {DNNL_ARG_SCALE, channels},      {DNNL_ARG_DIFF_DST, array},     {DNNL_ARG_DIFF_SRC, array},
                 {DNNL_ARG_DIFF_SCALE, channels}, {DNNL_ARG_DIFF_SHIFT, channels}};
    if (batch_normalization_backward_takes_shift()) arguments.emplace_back(DNNL_ARG_SHIFT, channels);
    if (workspace_bytes_ > 0) arguments.emplace_back(DNNL_ARG_WORKSPACE, workspace);
    backward_ = Primitive(dnn, dnnl::batch_normalization_backward(backward), arguments, backward.scratchpad_desc());
  }

  Needs needs() const override {
    // The gradients of gamma and beta always require the gradient of the input to be computed; if it is not needed, it
    // goes to scratch.
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .saved_bytes = spec_.training ? 2 * statistic_bytes() + workspace_bytes_ : 0,
            .scratch_bytes = round_up(std::max(forward_.scratch_bytes(), backward_.scratch_bytes())) +
                             (spec_.training ? array_bytes() : 0)};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    float* mean = spec_.training ? saved_mean(t) : t.buffers[0].data();
    float* variance = spec_.training ? saved_variance(t) : t.buffers[1].data();
    forward_.place(DNNL_ARG_SRC, t.inputs[0]);
    forward_.place(DNNL_ARG_DST, t.output);
    forward_.place(DNNL_ARG_MEAN, mean);
    forward_.place(DNNL_ARG_VARIANCE, variance);
    forward_.place(DNNL_ARG_SCALE, t.parameters[0]);
    forward_.place(DNNL_ARG_SHIFT, t.parameters[1]);
    if (workspace_bytes_ > 0) forward_.place(DNNL_ARG_WORKSPACE, t.saved.data() + 2 * statistic_bytes());
    forward_.run(t.scratch);
    if (spec_.training) update_moving_statistics(t, mean, variance);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const std::size_t own = round_up(std::max(forward_.scratch_bytes(), backward_.scratch_bytes()));
    const bool wanted = !t.input_gradients[0].empty();
    backward_.place(DNNL_ARG_SRC, t.inputs[0]);
    backward_.place(DNNL_ARG_MEAN, saved_mean(t));
    backward_.place(DNNL_ARG_VARIANCE, saved_variance(t));
    backward_.place(DNNL_ARG_SCALE, t.parameters[0]);
    if (batch_normalization_backward_takes_shift()) backward_.place(DNNL_ARG_SHIFT, t.parameters[1]);
    backward_.place(DNNL_ARG_DIFF_DST, t.output_gradient);
    backward_.place(DNNL_ARG_DIFF_SRC, wanted ? static_cast<const void*>(t.input_gradients[0].data())
                                              : static_cast<const void*>(t.scratch.data() + own));
    backward_.place(DNNL_ARG_DIFF_SCALE, t.parameter_gradients[0]);
    backward_.place(DNNL_ARG_DIFF_SHIFT, t.parameter_gradients[1]);
    if (workspace_bytes_ > 0) backward_.place(DNNL_ARG_WORKSPACE, t.saved.data() + 2 * statistic_bytes());
    backward_.run(t.scratch);
  }

 private:
  std::size_t statistic_bytes() const { return round_up(static_cast<std::size_t>(spec_.channels) * sizeof(float)); }
  std::size_t array_bytes() const { return static_cast<std::size_t>(spec_.rows * spec_.channels) * element_bytes_; }
  float* saved_mean(const Operands& t) const { return reinterpret_cast<float*>(t.saved.data()); }
  float* saved_variance(const Operands& t) const {
    return reinterpret_cast<float*>(t.saved.data() + statistic_bytes());
  }

  void update_moving_statistics(const Operands& t, const float* mean, const float* variance) const {
    const auto rows = static_cast<float>(spec_.rows);
    const float bessel = spec_.rows > 1 ? rows / (rows - 1) : 1.0f;
    for (std::size_t c = 0; c < t.buffers[0].size(); ++c) {
      t.buffers[0][c] += (1 - spec_.momentum) * (mean[c] - t.buffers[0][c]);
      t.buffers[1][c] += (1 - spec_.momentum) * (bessel * variance[c] - t.buffers[1][c]);
    }
  }

  BatchNormalizationSpec spec_;
  std::size_t element_bytes_;
  Primitive forward_;
  Primitive backward_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_batch_normalization(OneDnn& dnn, const BatchNormalizationSpec& spec) {
  return std::make_unique<BatchNormalizationOperation>(dnn, spec);
}

}  // namespace lockstep::model::cpu
