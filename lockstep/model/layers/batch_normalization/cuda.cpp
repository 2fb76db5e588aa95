#include "lockstep/model/backend.h"
#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"
#include "lockstep/model/layers/batch_normalization/kernels.h"

namespace lockstep::model::cuda {
namespace {

// In training, the statistics cover all members of the exchange; without one, only this replica.
// Saved from forward to backward: means, 1 / standard deviations, and the number of samples.
class BatchNormalizationOperation final : public Operation {
 public:
  BatchNormalizationOperation(Context& context, const BatchNormalizationSpec& spec)
      : context_(context),
        spec_(spec),
        exchange_(context.options().statistics),
        rows_(channel_layout(spec.rows, spec.channels)),
        moments_{static_cast<std::size_t>(spec.channels),
                 exchange_ == nullptr ? 1 : static_cast<std::size_t>(exchange_->members())},
        partials_at_(scratch_.add(spec.training ? partial_bytes(rows_) : 0)),
        shared_at_(scratch_.add(moments_.size() * sizeof(float))) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = spec_.relu,
            .saved_bytes = spec_.training ? (2 * moments_.channels + 1) * sizeof(float) : 0,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& /*pass*/) override {
    if (!spec_.training) return infer(o);
    if (exchange_ != nullptr) clear(o, moments_.size());  // the rows of other members
    const std::size_t me = exchange_ == nullptr ? 0 : static_cast<std::size_t>(exchange_->member());
    if (spec_.statistics)
      moments_of_sums(channel_sums(o.statistics.data(), spec_.channels), spec_.rows, moments_, me,
                      shared(o), context_.native());
    else
      batch_statistics(o.inputs[0], rows_, part_of(o.scratch, partials_at_), moments_, me,
                       shared(o), context_.native());
    share_moments(o);
    normalize(o.inputs[0], added(o), scale(o, means(o), inverse_deviations(o)), spec_.relu,
              spec_.channels, o.output, context_.native());
  }

  void forward_without_samples(const Operands& o) override {
    if (exchange_ == nullptr) return;
    clear(o, moments_.size());
    share_moments(o);
  }

  void backward(const Operands& o, const PassContext& /*pass*/) override {
    const ChannelScale s = scale(o, means(o), inverse_deviations(o));
    gradient_sums(o.inputs[0], o.output, o.output_gradient, spec_.relu, s, rows_,
                  part_of(o.scratch, partials_at_), shared(o), context_.native());
    copy(shared(o), o.parameter_gradients[1]);
    copy(shared(o) + spec_.channels, o.parameter_gradients[0]);
    if (exchange_ != nullptr) exchange_->sum({shared(o), 2 * moments_.channels});
    const TensorView of_added = spec_.add ? o.input_gradients[1] : TensorView();
    if (o.input_gradients[0].empty() && of_added.empty()) return;
    input_gradient(o.inputs[0], o.output, o.output_gradient, spec_.relu, s, shared(o), count(o),
                   spec_.channels, o.input_gradients[0], of_added, context_.native());
  }

  void backward_without_samples(const Operands& o) override {
    if (exchange_ == nullptr) return;
    clear(o, 2 * moments_.channels);
    exchange_->sum({shared(o), 2 * moments_.channels});
  }

 private:
  void infer(const Operands& o) {
    invert_deviations(o.buffers[1].data(), spec_.channels, spec_.epsilon, shared(o),
                      context_.native());
    normalize(o.inputs[0], added(o), scale(o, o.buffers[0].data(), shared(o)), spec_.relu,
              spec_.channels, o.output, context_.native());
  }

  void share_moments(const Operands& o) {
    if (exchange_ != nullptr) exchange_->sum({shared(o), moments_.size()});
    finish_statistics({.layout = moments_,
                       .moments = shared(o),
                       .epsilon = spec_.epsilon,
                       .momentum = spec_.momentum,
                       .moving_mean = o.buffers[0].data(),
                       .moving_variance = o.buffers[1].data(),
                       .means = means(o),
                       .inverse_deviations = inverse_deviations(o),
                       .count = count(o)},
                      context_.native());
  }

  TensorView added(const Operands& o) const { return spec_.add ? o.inputs[1] : TensorView(); }

  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
  float* means(const Operands& o) const { return floats(o.saved.data()); }
  float* inverse_deviations(const Operands& o) const { return means(o) + spec_.channels; }
  float* count(const Operands& o) const { return inverse_deviations(o) + spec_.channels; }
  /// Moments, sums of gradients or, in inference, inverse deviations from the moving variances.
  float* shared(const Operands& o) const { return floats(part_of(o.scratch, shared_at_)); }

  ChannelScale scale(const Operands& o, const float* means, const float* inverse_deviations) const {
    return {.means = means,
            .inverse_deviations = inverse_deviations,
            .gamma = o.parameters[0].data(),
            .beta = o.parameters[1].data()};
  }

  void clear(const Operands& o, std::size_t elements) {
    device::cuda::check(cudaMemsetAsync(shared(o), 0, elements * sizeof(float), context_.native()),
                        "zeros");
  }

  void copy(const float* from, std::span<float> to) {
    device::cuda::check(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToDevice,
                                        context_.native()),
                        "gradients of a normalization");
  }

  Context& context_;
  BatchNormalizationSpec spec_;
  StatisticsExchange* exchange_;  // null: only this replica's samples
  ChannelLayout rows_;
  MomentsLayout moments_;
  ScratchPlan scratch_;
  std::size_t partials_at_;
  std::size_t shared_at_;
};

}  // namespace
}  // namespace lockstep::model::cuda

namespace lockstep::model {

std::unique_ptr<Operation> BatchNormalization::compile_gpu(const CompileContext& context,
                                                           cuda::Context& gpu) const {
  return std::make_unique<cuda::BatchNormalizationOperation>(gpu, spec(context));
}

}  // namespace lockstep::model
