#include "model/cuda/batch_normalization_kernels.h"
#include "model/cuda/operations.h"
#include "model/cuda/scratch.h"

namespace lockstep::model::cuda {
namespace {

// Saved from forward to backward: batch means and 1 / standard deviations.
class BatchNormalizationOperation final : public Operation {
 public:
  BatchNormalizationOperation(Context& context, const BatchNormalizationSpec& spec)
      : context_(context),
        spec_(spec),
        layout_(channel_layout(spec.rows, spec.channels)),
        partials_at_(scratch_.add(spec.training ? partial_bytes(layout_) : 0)),
        squares_at_(scratch_.add(2 * channel_bytes())) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = spec_.relu,
            .saved_bytes = spec_.training ? 2 * channel_bytes() : 0,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    if (!spec_.training) {
      float* const inverse_deviations = floats(part_of(o.scratch, squares_at_));
      invert_deviations(o.buffers[1].data(), spec_.channels, spec_.epsilon, inverse_deviations, context_.native());
      normalize(o.inputs[0], {}, scale(o, o.buffers[0].data(), inverse_deviations), spec_.relu, spec_.channels,
                o.output, context_.native());
      return;
    }
    float* const squares = floats(part_of(o.scratch, squares_at_));
    batch_statistics(o.inputs[0], layout_, part_of(o.scratch, partials_at_), means(o), squares, context_.native());
    finish_statistics({.channels = spec_.channels,
                       .count = static_cast<float>(spec_.rows),
                       .epsilon = spec_.epsilon,
                       .momentum = spec_.momentum,
                       .means = means(o),
                       .squares = squares,
                       .moving_mean = o.buffers[0].data(),
                       .moving_variance = o.buffers[1].data(),
                       .inverse_deviations = inverse_deviations(o)},
                      context_.native());
    normalize(o.inputs[0], {}, scale(o, means(o), inverse_deviations(o)), spec_.relu, spec_.channels, o.output,
              context_.native());
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    const ChannelScale s = scale(o, means(o), inverse_deviations(o));
    float* const sums = floats(part_of(o.scratch, squares_at_));
    gradient_sums(o.inputs[0], o.output, o.output_gradient, spec_.relu, s, layout_, part_of(o.scratch, partials_at_),
                  sums, context_.native());
    copy(sums, o.parameter_gradients[1]);
    copy(sums + spec_.channels, o.parameter_gradients[0]);
    if (o.input_gradients[0].empty()) return;
    input_gradient(o.inputs[0], o.output, o.output_gradient, spec_.relu, s, sums, static_cast<float>(spec_.rows),
                   spec_.channels, o.input_gradients[0], {}, context_.native());
  }

 private:
  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
  std::size_t channel_bytes() const { return static_cast<std::size_t>(spec_.channels) * sizeof(float); }
  float* means(const Operands& o) const { return floats(o.saved.data()); }
  float* inverse_deviations(const Operands& o) const { return means(o) + spec_.channels; }

  ChannelScale scale(const Operands& o, const float* means, const float* inverse_deviations) const {
    return {.means = means,
            .inverse_deviations = inverse_deviations,
            .gamma = o.parameters[0].data(),
            .beta = o.parameters[1].data()};
  }

  void copy(const float* from, std::span<float> to) {
    device::cuda::check(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToDevice, context_.native()),
                        "gradients of a normalization");
  }

  Context& context_;
  BatchNormalizationSpec spec_;
  ChannelLayout layout_;
  ScratchPlan scratch_;
  std::size_t partials_at_;
  std::size_t squares_at_;  // or, in backward, the sums of gradients
};

}  // namespace

std::unique_ptr<Operation> make_batch_normalization(Context& context, const BatchNormalizationSpec& spec) {
  return std::make_unique<BatchNormalizationOperation>(context, spec);
}

}  // namespace lockstep::model::cuda
