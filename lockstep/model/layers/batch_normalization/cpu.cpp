#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layer/backend.h"
#include "lockstep/model/layers/batch_normalization/batch_normalization.h"
#include "lockstep/model/layers/batch_normalization/batch_statistics.h"
#include "lockstep/model/layers/batch_normalization/channel_rows.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// In training, the statistics cover all members of the exchange; without one, only this replica.
// Saved from forward to backward: means, 1 / standard deviations, the number of samples, and the
// mask of a fused ReLU.
class BatchNormalizationOperation final : public Operation {
 public:
  BatchNormalizationOperation(const BatchNormalizationSpec& spec, StatisticsExchange* exchange)
      : spec_(spec),
        exchange_(spec.moving ? nullptr : exchange),
        rows_(spec.rows, spec.channels),
        moments_{static_cast<std::size_t>(spec.channels),
                 exchange_ == nullptr ? 1 : static_cast<std::size_t>(exchange_->members())},
        mask_at_((2 * moments_.channels + 1) * sizeof(float)),
        shared_(moments_.size()) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .gradient_in_place = true,
            .skips_frozen = true,
            .saves_once = true,
            .saved_bytes = spec_.training ? mask_at_ + (spec_.relu ? rows_.mask_bytes() : 0) : 0,
            .scratch_bytes = rows_.scratch_bytes()};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    if (spec_.moving)
      write_moving_scale(t);
    else if (!pass.recomputing)
      write_statistics(t);
    normalize(t.inputs[0], spec_.add ? t.inputs[1] : TensorView(), scale(t), spec_.relu, rows_,
              t.scratch, t.output, mask(t));
  }

  void forward_without_samples(const Operands& t) override {
    if (exchange_ == nullptr) return;
    std::ranges::fill(shared_, 0.0f);
    share_moments(t);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const GradientArrays arrays = {t.inputs[0], t.output_gradient, mask(t)};
    if (spec_.moving)
      std::ranges::fill(shared_, 0.0f);  // constant statistics add nothing to the gradient
    else
      write_sums(arrays, t);
    const TensorView added_gradient = spec_.add ? t.input_gradients[1] : TensorView();
    if (t.input_gradients[0].empty() && added_gradient.empty()) return;
    input_gradient(arrays, scale(t), shared_.data(), spec_.moving ? 1.0f : count(t), rows_,
                   t.scratch, t.input_gradients[0], added_gradient);
  }

  void backward_without_samples(const Operands& /*t*/) override {
    if (exchange_ == nullptr) return;
    std::ranges::fill(shared_, 0.0f);
    exchange_->sum(std::span(shared_).first(2 * moments_.channels));
  }

 private:
  void write_statistics(const Operands& t) {
    std::ranges::fill(shared_, 0.0f);  // the rows of other members
    const std::size_t me = exchange_ == nullptr ? 0 : static_cast<std::size_t>(exchange_->member());
    channel_moments(t.inputs[0], rows_, t.scratch, &shared_[moments_.mean(me, 0)],
                    &shared_[moments_.squares(me, 0)]);
    shared_[moments_.count(me)] = static_cast<float>(spec_.rows);
    share_moments(t);
  }

  void share_moments(const Operands& t) {
    if (exchange_ != nullptr) exchange_->sum(shared_);
    count(t) = moments_.together(shared_.data(), 0).count;
    if (count(t) == 0) return;
    for (std::size_t c = 0; c < moments_.channels; ++c) {
      const BatchMoments all = moments_.together(shared_.data(), c);
      means(t)[c] = all.mean;
      inverse_deviations(t)[c] = inverse_deviation(biased_variance(all));
      t.buffers[0][c] = moved(t.buffers[0][c], all.mean, spec_.momentum);
      t.buffers[1][c] = moved(t.buffers[1][c], unbiased_variance(all), spec_.momentum);
    }
  }

  // The sums of this replica are the gradients of beta and gamma.
  void write_sums(const GradientArrays& arrays, const Operands& t) {
    const auto sums = std::span(shared_).first(2 * moments_.channels);
    gradient_sums(arrays, scale(t), rows_, t.scratch, sums.data());
    std::ranges::copy(sums.first(moments_.channels), t.parameter_gradients[1].begin());
    std::ranges::copy(sums.last(moments_.channels), t.parameter_gradients[0].begin());
    if (exchange_ != nullptr) exchange_->sum(sums);
  }

  void write_moving_scale(const Operands& t) {
    for (std::size_t c = 0; c < moments_.channels; ++c)
      inverse_deviations(t)[c] = inverse_deviation(t.buffers[1][c]);
  }

  float inverse_deviation(float variance) const { return 1 / std::sqrt(variance + spec_.epsilon); }

  // In inference nothing is saved.
  float* saved(const Operands& t) {
    return spec_.training ? reinterpret_cast<float*>(t.saved.data()) : shared_.data();
  }
  float* means(const Operands& t) { return saved(t); }
  float* inverse_deviations(const Operands& t) { return saved(t) + spec_.channels; }
  float& count(const Operands& t) { return saved(t)[2 * spec_.channels]; }

  std::uint16_t* mask(const Operands& t) const {
    if (!spec_.relu || !spec_.training) return nullptr;
    return reinterpret_cast<std::uint16_t*>(t.saved.data() + mask_at_);
  }

  ChannelScale scale(const Operands& t) {
    return {.means = spec_.moving ? t.buffers[0].data() : means(t),
            .inverse_deviations = inverse_deviations(t),
            .gamma = t.parameters[0].data(),
            .beta = t.parameters[1].data()};
  }

  BatchNormalizationSpec spec_;
  StatisticsExchange* exchange_;  // null: only this replica's samples
  ChannelRows rows_;
  MomentsLayout moments_;
  std::size_t mask_at_;        // in the saved data
  std::vector<float> shared_;  // moments, or sums of gradients
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> BatchNormalization::compile_cpu(const CompileContext& context,
                                                           cpu::Context& cpu) const {
  return std::make_unique<cpu::BatchNormalizationOperation>(spec(context), cpu.statistics);
}

}  // namespace lockstep::inline v0::model
