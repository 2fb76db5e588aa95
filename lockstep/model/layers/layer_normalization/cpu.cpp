#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// Rows are widened to float32 when they are read and rounded once when they are written. Sums over
// rows are float32 within a block of rows and double over the blocks: converting each row would
// dominate the time.
template <typename T>
class RowNormalizationOperation final : public Operation {
 public:
  explicit RowNormalizationOperation(const RowNormalizationSpec& spec)
      : spec_(spec), normalized_(spec.width), ones_(Eigen::ArrayXf::Ones(spec.width)) {
    if (!spec.training) return;
    for (Eigen::ArrayXf* row : {&gradient_, &wide_input_, &wide_gradient_}) row->resize(spec.width);
    for (Sums& sums : sums_) {
      sums.block.resize(spec.width);
      sums.total.resize(spec.width);
    }
  }

  Needs needs() const override {
    return {.inputs_in_backward = spec_.reads_input(),
            .output_in_backward = false,
            .gradient_in_place = true,
            .skips_frozen = true,
            .saved_bytes = spec_.statistics_bytes()};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    const ConstFloatArray scale(gamma(t), spec_.width);
    const float* const beta = spec_.shifts ? arrays(t).back().data() : nullptr;
    for (std::int64_t r = 0; r < spec_.rows; ++r) {
      widen(row(t.inputs[0], r), spec_.width, normalized_.data());
      const float mean = spec_.centers ? normalized_.mean() : 0.0f;
      if (spec_.centers) normalized_ -= mean;
      const float inverse =
          spec_.normalizes ? 1 / std::sqrt(normalized_.square().mean() + spec_.epsilon) : 1.0f;
      T* const output = row(t.output, r);
      if (spec_.shifts)
        assign(normalized_ * inverse * scale + ConstFloatArray(beta, spec_.width), output,
               spec_.width, normalized_.data());
      else
        assign(normalized_ * inverse * scale, output, spec_.width, normalized_.data());
      if (spec_.training && spec_.normalizes) statistics(t)[r] = {mean, inverse};
    }
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    constexpr std::int64_t kBlock = 32;
    const bool has_sums = spec_.trains && !t.parameter_gradients[0].empty();
    for (Sums& sums : sums_) sums.total.setZero();
    for (std::int64_t first = 0; first < spec_.rows; first += kBlock) {
      for (Sums& sums : sums_) sums.block.setZero();
      for (std::int64_t r = first; r < std::min(first + kBlock, spec_.rows); ++r)
        process_gradient(t, r);
      if (!has_sums) continue;
      for (Sums& sums : sums_) sums.total += sums.block.template cast<double>();
    }
    const auto write = [&](std::size_t parameter, const Sums& sums) {
      FloatArray(t.parameter_gradients[parameter].data(), spec_.width) =
          sums.total.template cast<float>();
    };
    if (has_sums && spec_.scales) write(0, sums_[0]);
    if (has_sums && spec_.shifts) write(spec_.scales ? 1 : 0, sums_[1]);
  }

 private:
  // Sums for the gradient of a parameter.
  struct Sums {
    Eigen::ArrayXf block;
    Eigen::ArrayXd total;
  };

  // Adds the contribution of row r to the gradients of gamma and beta, and writes that of the
  // input.
  void process_gradient(const Operands& t, std::int64_t r) {
    const RowStatistics row_statistics =
        spec_.normalizes ? statistics(t)[r] : RowStatistics{.mean = 0, .inverse_deviation = 1};
    const TensorView& read = spec_.reads_input() ? t.inputs[0] : t.output_gradient;
    normalize(widened(row(read, r), spec_.width, wide_input_.data()).data(),
              widened(row(t.output_gradient, r), spec_.width, wide_gradient_.data()).data(),
              gamma(t), row_statistics, spec_.width, normalized_.data(), gradient_.data(),
              sums_[0].block.data(), sums_[1].block.data());
    if (t.input_gradients[0].empty()) return;
    if (!spec_.normalizes)
      return assign(gradient_, row(t.input_gradients[0], r), spec_.width, gradient_.data());
    const float mean = spec_.centers ? gradient_.mean() : 0.0f;
    const float slope = (gradient_ * normalized_).mean();
    assign((gradient_ - mean - normalized_ * slope) * row_statistics.inverse_deviation,
           row(t.input_gradients[0], r), spec_.width, gradient_.data());
  }

  // The normalized input of a row and its gradient, and the sums for gamma and beta, in one pass.
  static void normalize(const float* __restrict input, const float* __restrict output_gradient,
                        const float* __restrict gamma, const RowStatistics& row_statistics,
                        std::int64_t width, float* __restrict normalized,
                        float* __restrict gradient, float* __restrict gamma_sums,
                        float* __restrict beta_sums) {
    const auto [mean, inverse] = row_statistics;
    for (std::int64_t i = 0; i < width; ++i) {
      const float value = (input[i] - mean) * inverse;
      const float dy = output_gradient[i];
      gamma_sums[i] += dy * value;
      beta_sums[i] += dy;
      normalized[i] = value;
      gradient[i] = dy * gamma[i];
    }
  }

  const float* gamma(const Operands& t) const {
    return spec_.scales ? arrays(t).front().data() : ones_.data();
  }
  const std::vector<std::span<float>>& arrays(const Operands& t) const {
    return spec_.trains ? t.parameters : t.buffers;
  }
  T* row(const TensorView& view, std::int64_t index) const {
    return static_cast<T*>(view.data()) + index * spec_.width;
  }
  static RowStatistics* statistics(const Operands& t) {
    return reinterpret_cast<RowStatistics*>(t.saved.data());
  }

  RowNormalizationSpec spec_;
  Eigen::ArrayXf normalized_;
  Eigen::ArrayXf ones_;
  Eigen::ArrayXf gradient_;  // gradient of the normalized row
  Eigen::ArrayXf wide_input_;
  Eigen::ArrayXf wide_gradient_;
  Sums sums_[2];  // gamma, beta
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> RowNormalization::compile_cpu(const CompileContext& context,
                                                         cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::RowNormalizationOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::RowNormalizationOperation<float>>(spec(context));
}

}  // namespace lockstep::inline v0::model
