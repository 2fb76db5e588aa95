#include "lockstep/model/cuda/context.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layer/step_profile.h"
#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"
#include "lockstep/model/layers/batch_normalization/kernels.h"

namespace lockstep::inline v0::model::cuda {
namespace {

// In training, the statistics cover all members of the exchange; without one, only this replica.
// Saved from forward to backward: means, 1 / standard deviations, the number of samples, and the
// mask of a fused ReLU.
class BatchNormalizationOperation final : public Operation {
 public:
  BatchNormalizationOperation(Context& context, const BatchNormalizationSpec& spec)
      : context_(context),
        spec_(spec),
        exchange_(spec.moving ? nullptr : context.statistics()),
        rows_(channel_layout(spec.rows, spec.channels, context.options().precision,
                             context.multiprocessors())),
        moments_{static_cast<std::size_t>(spec.channels),
                 exchange_ == nullptr ? 1 : static_cast<std::size_t>(exchange_->members())},
        partials_at_(scratch_.add(spec.training ? partial_bytes(rows_) : 0)),
        shared_at_(scratch_.add(moments_.size() * sizeof(float))),
        mask_at_((2 * moments_.channels + 1) * sizeof(float)) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .skips_frozen = true,
            .saves_once = true,
            .saved_bytes = spec_.training ? mask_at_ + (spec_.relu ? mask_bytes(rows_) : 0) : 0,
            .scratch_bytes = scratch_.bytes()};
  }

  void forward(const Operands& o, const PassContext& pass) override {
    if (spec_.moving) return normalize_by_moving(o);
    if (!pass.recomputing) write_statistics(o, pass);
    normalize(o.inputs[0], added(o), scale(o, means(o), inverse_deviations(o)), spec_.relu, rows_,
              o.output, mask(o), context_.native());
  }

  void forward_without_samples(const Operands& o) override {
    if (exchange_ == nullptr) return;
    clear(o, moments_.size());
    share_moments(o);
  }

  void backward(const Operands& o, const PassContext& pass) override {
    if (spec_.moving) return backward_of_moving(o);
    const ChannelScale s = scale(o, means(o), inverse_deviations(o));
    gradient_sums(o.inputs[0], mask(o), o.output_gradient, s, rows_,
                  part_of(o.scratch, partials_at_),
                  {.sums = shared(o),
                   .beta = o.parameter_gradients[1].data(),
                   .gamma = o.parameter_gradients[0].data()},
                  context_.native());
    if (exchange_ != nullptr) exchange_->sum({shared(o), 2 * moments_.channels});
    end_part(pass, Part::gradient_sums);
    const TensorView added_gradient = spec_.add ? o.input_gradients[1] : TensorView();
    if (o.input_gradients[0].empty() && added_gradient.empty()) return;
    input_gradient(o.inputs[0], mask(o), o.output_gradient, s, shared(o), count(o), rows_,
                   o.input_gradients[0], added_gradient, context_.native());
  }

  void backward_without_samples(const Operands& o) override {
    if (exchange_ == nullptr) return;
    clear(o, 2 * moments_.channels);
    exchange_->sum({shared(o), 2 * moments_.channels});
  }

 private:
  void write_statistics(const Operands& o, const PassContext& pass) {
    if (exchange_ != nullptr) clear(o, moments_.size());  // the rows of other members
    const std::size_t me = exchange_ == nullptr ? 0 : static_cast<std::size_t>(exchange_->member());
    if (spec_.statistics)
      moments_of_sums(channel_sums(o.statistics.data(), spec_.channels), spec_.rows, statistics(o),
                      me, context_.native());
    else
      batch_statistics(o.inputs[0], rows_, part_of(o.scratch, partials_at_), statistics(o), me,
                       context_.native());
    share_moments(o);
    end_part(pass, Part::statistics);
  }

  void normalize_by_moving(const Operands& o) {
    float* const inverse = spec_.training ? inverse_deviations(o) : shared(o);
    invert_deviations(o.buffers[1].data(), spec_.channels, spec_.epsilon, inverse,
                      context_.native());
    normalize(o.inputs[0], added(o), scale(o, o.buffers[0].data(), inverse), spec_.relu, rows_,
              o.output, spec_.training ? mask(o) : nullptr, context_.native());
  }

  // The gradient of the input with sums of 0: constant statistics add nothing to it.
  void backward_of_moving(const Operands& o) {
    const TensorView added_gradient = spec_.add ? o.input_gradients[1] : TensorView();
    if (o.input_gradients[0].empty() && added_gradient.empty()) return;
    clear(o, 2 * moments_.channels);
    constexpr int kAboveZero = 0x3f;  // four of these bytes are a float above 0
    device::cuda::check(cudaMemsetAsync(count(o), kAboveZero, sizeof(float), context_.native()),
                        "count");
    input_gradient(o.inputs[0], mask(o), o.output_gradient,
                   scale(o, o.buffers[0].data(), inverse_deviations(o)), shared(o), count(o), rows_,
                   o.input_gradients[0], added_gradient, context_.native());
  }

  void share_moments(const Operands& o) {
    if (exchange_ == nullptr) return;
    exchange_->sum({shared(o), moments_.size()});
    finish_statistics(statistics(o), context_.native());
  }

  StatisticsArguments statistics(const Operands& o) const {
    return {.layout = moments_,
            .moments = exchange_ == nullptr ? nullptr : shared(o),
            .epsilon = spec_.epsilon,
            .momentum = spec_.momentum,
            .moving_mean = o.buffers[0].data(),
            .moving_variance = o.buffers[1].data(),
            .means = means(o),
            .inverse_deviations = inverse_deviations(o),
            .count = count(o)};
  }

  TensorView added(const Operands& o) const { return spec_.add ? o.inputs[1] : TensorView(); }

  static float* floats(std::byte* memory) { return reinterpret_cast<float*>(memory); }
  float* means(const Operands& o) const { return floats(o.saved.data()); }
  float* inverse_deviations(const Operands& o) const { return means(o) + spec_.channels; }
  float* count(const Operands& o) const { return inverse_deviations(o) + spec_.channels; }
  std::uint8_t* mask(const Operands& o) const {
    return spec_.relu ? reinterpret_cast<std::uint8_t*>(o.saved.data() + mask_at_) : nullptr;
  }
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

  Context& context_;
  BatchNormalizationSpec spec_;
  StatisticsExchange* exchange_;  // null: only this replica's samples
  ChannelLayout rows_;
  MomentsLayout moments_;
  ScratchPlan scratch_;
  std::size_t partials_at_;
  std::size_t shared_at_;
  std::size_t mask_at_;  // in the saved data
};

}  // namespace
}  // namespace lockstep::inline v0::model::cuda

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> BatchNormalization::compile_gpu(const CompileContext& context,
                                                           cuda::Context& gpu) const {
  return std::make_unique<cuda::BatchNormalizationOperation>(gpu, spec(context));
}

}  // namespace lockstep::inline v0::model
