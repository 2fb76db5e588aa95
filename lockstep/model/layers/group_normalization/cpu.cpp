#include <Eigen/Core>
#include <cmath>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/group_normalization/group_normalization.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Rows are the positions of a sample. Sums over positions are float32 for each channel within a
// block of rows, and double over the blocks and over the channels of a group.
template <typename T>
class GroupNormalizationOperation final : public Operation {
 public:
  explicit GroupNormalizationOperation(const GroupNormalizationSpec& spec)
      : spec_(spec),
        gamma_(Eigen::ArrayXf::Ones(spec.channels)),
        scales_(spec.channels),
        shifts_(spec.channels),
        wide_(spec.channels),
        wide_gradient_(spec.channels) {
    for (Sums& sums : sums_) {
      sums.block.resize(spec.channels);
      sums.total.resize(spec.channels);
    }
    statistics_.resize(static_cast<std::size_t>(spec.groups));
  }

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .gradient_in_place = true,
            .skips_frozen = true,
            .saved_bytes = spec_.statistics_bytes()};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    load_gamma(t);
    const float* const beta = spec_.center ? t.parameters.back().data() : nullptr;
    for (std::int64_t sample = 0; sample < spec_.samples; ++sample) {
      GroupStatistics* const statistics =
          spec_.training ? saved(t) + sample * spec_.groups : statistics_.data();
      sum_rows(sample, [&](std::int64_t row) { sums_[0].block += input(t, row); });
      const auto count = static_cast<double>(spec_.positions * spec_.width());
      for (std::int64_t g = 0; g < spec_.groups; ++g)
        statistics[g].mean = static_cast<float>(of_group(sums_[0].total, g).sum() / count);
      spread(statistics, scales_, [](const GroupStatistics& s) { return s.mean; });
      sum_rows(sample,
               [&](std::int64_t row) { sums_[0].block += (input(t, row) - scales_).square(); });
      for (std::int64_t g = 0; g < spec_.groups; ++g)
        statistics[g].inverse_deviation =
            static_cast<float>(1 / std::sqrt(of_group(sums_[0].total, g).sum() / count +
                                             static_cast<double>(spec_.epsilon)));
      shifts_ = scales_;  // the means
      spread(statistics, scales_, [](const GroupStatistics& s) { return s.inverse_deviation; });
      scales_ *= gamma_;
      for_rows(sample, [&](std::int64_t row) {
        const auto x = input(t, row);
        if (beta != nullptr)
          assign((x - shifts_) * scales_ + ConstFloatArray(beta, spec_.channels),
                 elements(t.output, row), spec_.channels, wide_.data());
        else
          assign((x - shifts_) * scales_, elements(t.output, row), spec_.channels, wide_.data());
      });
    }
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    load_gamma(t);
    Eigen::ArrayXd gamma_gradient = Eigen::ArrayXd::Zero(spec_.channels);
    Eigen::ArrayXd beta_gradient = Eigen::ArrayXd::Zero(spec_.channels);
    for (std::int64_t sample = 0; sample < spec_.samples; ++sample) {
      const GroupStatistics* const statistics = saved(t) + sample * spec_.groups;
      spread(statistics, shifts_, [](const GroupStatistics& s) { return s.mean; });
      spread(statistics, scales_, [](const GroupStatistics& s) { return s.inverse_deviation; });
      sum_rows(sample, [&](std::int64_t row) {
        const auto dy = gradient(t, row);
        sums_[0].block += dy;
        sums_[1].block += dy * (input(t, row) - shifts_) * scales_;
      });
      beta_gradient += sums_[0].total;
      gamma_gradient += sums_[1].total;
      if (t.input_gradients[0].empty()) continue;
      // The means over a group of the gradient of the normalized elements, and of its product with
      // them.
      const auto count = static_cast<double>(spec_.positions * spec_.width());
      for (Sums& sums : sums_) {
        sums.total *= gamma_.cast<double>();
        for (std::int64_t g = 0; g < spec_.groups; ++g)
          sums.block.segment(g * spec_.width(), spec_.width())
              .setConstant(static_cast<float>(of_group(sums.total, g).sum() / count));
      }
      for_rows(sample, [&](std::int64_t row) {
        const auto dy = gradient(t, row);
        const auto normalized = (input(t, row) - shifts_) * scales_;
        assign((dy * gamma_ - sums_[0].block - normalized * sums_[1].block) * scales_,
               elements(t.input_gradients[0], row), spec_.channels, wide_gradient_.data());
      });
    }
    const auto write = [&](std::size_t parameter, const Eigen::ArrayXd& sums) {
      if (!t.parameter_gradients[parameter].empty())
        FloatArray(t.parameter_gradients[parameter].data(), spec_.channels) = sums.cast<float>();
    };
    if (spec_.scale) write(0, gamma_gradient);
    if (spec_.center) write(spec_.scale ? 1 : 0, beta_gradient);
  }

 private:
  struct Sums {
    Eigen::ArrayXf block;
    Eigen::ArrayXd total;
  };

  void load_gamma(const Operands& t) {
    if (spec_.scale) gamma_ = ConstFloatArray(t.parameters[0].data(), spec_.channels);
  }

  template <typename Each>
  void for_rows(std::int64_t sample, const Each& each) const {
    for (std::int64_t p = 0; p < spec_.positions; ++p) each(sample * spec_.positions + p);
  }

  // Sets the totals to the sums of what `add` adds to the blocks for each row of a sample.
  template <typename Add>
  void sum_rows(std::int64_t sample, const Add& add) {
    constexpr std::int64_t kBlock = 32;
    for (Sums& sums : sums_) sums.total.setZero();
    for (std::int64_t first = 0; first < spec_.positions; first += kBlock) {
      for (Sums& sums : sums_) sums.block.setZero();
      for (std::int64_t p = first; p < std::min(first + kBlock, spec_.positions); ++p)
        add(sample * spec_.positions + p);
      for (Sums& sums : sums_) sums.total += sums.block.template cast<double>();
    }
  }

  auto of_group(const Eigen::ArrayXd& values, std::int64_t group) const {
    return values.segment(group * spec_.width(), spec_.width());
  }

  // Writes a value of each group to all of its channels.
  template <typename Value>
  void spread(const GroupStatistics* statistics, Eigen::ArrayXf& channels,
              const Value& value) const {
    for (std::int64_t g = 0; g < spec_.groups; ++g)
      channels.segment(g * spec_.width(), spec_.width()).setConstant(value(statistics[g]));
  }

  T* elements(const TensorView& view, std::int64_t row) const {
    return static_cast<T*>(view.data()) + row * spec_.channels;
  }
  ConstFloatArray input(const Operands& t, std::int64_t row) {
    return widened(elements(t.inputs[0], row), spec_.channels, wide_.data());
  }
  ConstFloatArray gradient(const Operands& t, std::int64_t row) {
    return widened(elements(t.output_gradient, row), spec_.channels, wide_gradient_.data());
  }
  static GroupStatistics* saved(const Operands& t) {
    return reinterpret_cast<GroupStatistics*>(t.saved.data());
  }

  GroupNormalizationSpec spec_;
  Eigen::ArrayXf gamma_;
  Eigen::ArrayXf scales_;
  Eigen::ArrayXf shifts_;
  Eigen::ArrayXf wide_;
  Eigen::ArrayXf wide_gradient_;
  Sums sums_[2];
  std::vector<GroupStatistics> statistics_;  // in inference, for one sample
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> GroupNormalization::compile_cpu(const CompileContext& context,
                                                           cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::GroupNormalizationOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::GroupNormalizationOperation<float>>(spec(context));
}

}  // namespace lockstep::inline v0::model
