#include <Eigen/Core>
#include <cmath>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

namespace lockstep::model::cpu {
namespace {

using FloatRow = Eigen::ArrayXf;
using ConstFloatRow = Eigen::Map<const FloatRow>;

// Rows are widened to float32 when they are read and rounded once when they are written.
template <typename T>
class LayerNormalizationOperation final : public Operation {
 public:
  explicit LayerNormalizationOperation(const LayerNormalizationSpec& spec)
      : spec_(spec), normalized_(spec.width), gradient_(spec.width) {}

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .saved_bytes =
                spec_.training ? static_cast<std::size_t>(spec_.rows) * sizeof(RowStatistics) : 0};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    const ConstFloatRow gamma(t.parameters[0].data(), spec_.width);
    const ConstFloatRow beta(t.parameters[1].data(), spec_.width);
    for (std::int64_t r = 0; r < spec_.rows; ++r) {
      normalized_ = row(t.inputs[0], r).template cast<float>();
      const float mean = normalized_.mean();
      normalized_ -= mean;
      const float inverse = 1 / std::sqrt(normalized_.square().mean() + spec_.epsilon);
      row(t.output, r) = (normalized_ * inverse * gamma + beta).template cast<T>();
      if (spec_.training) statistics(t)[r] = {mean, inverse};
    }
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const ConstFloatRow gamma(t.parameters[0].data(), spec_.width);
    Eigen::ArrayXd gamma_sums = Eigen::ArrayXd::Zero(spec_.width);
    Eigen::ArrayXd beta_sums = gamma_sums;
    for (std::int64_t r = 0; r < spec_.rows; ++r) {
      const RowStatistics& of_row = statistics(t)[r];
      normalized_ =
          (row(t.inputs[0], r).template cast<float>() - of_row.mean) * of_row.inverse_deviation;
      gradient_ = row(t.output_gradient, r).template cast<float>();
      gamma_sums += (gradient_ * normalized_).template cast<double>();
      beta_sums += gradient_.template cast<double>();
      if (t.input_gradients[0].empty()) continue;
      gradient_ *= gamma;
      const float mean = gradient_.mean();
      const float slope = (gradient_ * normalized_).mean();
      row(t.input_gradients[0], r) =
          ((gradient_ - mean - normalized_ * slope) * of_row.inverse_deviation).template cast<T>();
    }
    Eigen::Map<FloatRow>(t.parameter_gradients[0].data(), spec_.width) = gamma_sums.cast<float>();
    Eigen::Map<FloatRow>(t.parameter_gradients[1].data(), spec_.width) = beta_sums.cast<float>();
  }

 private:
  auto row(const TensorView& view, std::int64_t index) const {
    using Values = Eigen::Array<T, Eigen::Dynamic, 1>;
    return Eigen::Map<Values>(static_cast<T*>(view.data()) + index * spec_.width, spec_.width);
  }
  static RowStatistics* statistics(const Operands& t) {
    return reinterpret_cast<RowStatistics*>(t.saved.data());
  }

  LayerNormalizationSpec spec_;
  FloatRow normalized_;
  FloatRow gradient_;
};

}  // namespace
}  // namespace lockstep::model::cpu

namespace lockstep::model {

std::unique_ptr<Operation> LayerNormalization::compile_cpu(const CompileContext& context,
                                                           cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::LayerNormalizationOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::LayerNormalizationOperation<float>>(spec(context));
}

}  // namespace lockstep::model
