#include <Eigen/Core>
#include <algorithm>
#include <cmath>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/layer_normalization/layer_normalization.h"

namespace lockstep::model::cpu {
namespace {

using FloatRow = Eigen::ArrayXf;
using ConstFloatRow = Eigen::Map<const FloatRow>;

// Rows are widened to float32 when they are read and rounded once when they are written. Sums over
// rows are float32 within a block of rows and double over the blocks: converting each row would
// take longer than all else.
template <typename T>
class RowNormalizationOperation final : public Operation {
 public:
  explicit RowNormalizationOperation(const RowNormalizationSpec& spec)
      : spec_(spec), normalized_(spec.width) {
    if (!spec.training) return;
    gradient_.resize(spec.width);
    for (Sums& sums : sums_) {
      sums.of_block.resize(spec.width);
      sums.of_all.resize(spec.width);
    }
  }

  Needs needs() const override {
    return {.inputs_in_backward = true,
            .output_in_backward = false,
            .gradient_in_place = true,
            .skips_frozen = true,
            .saved_bytes =
                spec_.training ? static_cast<std::size_t>(spec_.rows) * sizeof(RowStatistics) : 0};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    const ConstFloatRow gamma(t.parameters[0].data(), spec_.width);
    const float* const beta = spec_.centers ? t.parameters[1].data() : nullptr;
    for (std::int64_t r = 0; r < spec_.rows; ++r) {
      normalized_ = row(t.inputs[0], r).template cast<float>();
      const float mean = spec_.centers ? normalized_.mean() : 0.0f;
      if (spec_.centers) normalized_ -= mean;
      const float inverse = 1 / std::sqrt(normalized_.square().mean() + spec_.epsilon);
      if (spec_.centers)
        row(t.output, r) =
            (normalized_ * inverse * gamma + ConstFloatRow(beta, spec_.width)).template cast<T>();
      else
        row(t.output, r) = (normalized_ * inverse * gamma).template cast<T>();
      if (spec_.training) statistics(t)[r] = {mean, inverse};
    }
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    constexpr std::int64_t kBlock = 32;
    const bool has_sums = !t.parameter_gradients[0].empty();
    for (Sums& sums : sums_) sums.of_all.setZero();
    for (std::int64_t first = 0; first < spec_.rows; first += kBlock) {
      for (Sums& sums : sums_) sums.of_block.setZero();
      for (std::int64_t r = first; r < std::min(first + kBlock, spec_.rows); ++r)
        process_gradient(t, r, has_sums);
      if (!has_sums) continue;
      for (Sums& sums : sums_) sums.of_all += sums.of_block.template cast<double>();
    }
    for (std::size_t p = 0; has_sums && p < t.parameter_gradients.size(); ++p)
      Eigen::Map<FloatRow>(t.parameter_gradients[p].data(), spec_.width) =
          sums_[p].of_all.template cast<float>();
  }

 private:
  // Of the gradient of a parameter.
  struct Sums {
    FloatRow of_block;
    Eigen::ArrayXd of_all;
  };

  // Adds what row r contributes to the gradients of gamma and beta, and writes that of the input.
  void process_gradient(const Operands& t, std::int64_t r, bool has_sums) {
    const RowStatistics& of_row = statistics(t)[r];
    normalized_ =
        (row(t.inputs[0], r).template cast<float>() - of_row.mean) * of_row.inverse_deviation;
    gradient_ = row(t.output_gradient, r).template cast<float>();
    if (has_sums) {
      sums_[0].of_block += gradient_ * normalized_;
      if (spec_.centers) sums_[1].of_block += gradient_;
    }
    if (t.input_gradients[0].empty()) return;
    gradient_ *= ConstFloatRow(t.parameters[0].data(), spec_.width);
    const float mean = spec_.centers ? gradient_.mean() : 0.0f;
    const float slope = (gradient_ * normalized_).mean();
    row(t.input_gradients[0], r) =
        ((gradient_ - mean - normalized_ * slope) * of_row.inverse_deviation).template cast<T>();
  }

  auto row(const TensorView& view, std::int64_t index) const {
    using Values = Eigen::Array<T, Eigen::Dynamic, 1>;
    return Eigen::Map<Values>(static_cast<T*>(view.data()) + index * spec_.width, spec_.width);
  }
  static RowStatistics* statistics(const Operands& t) {
    return reinterpret_cast<RowStatistics*>(t.saved.data());
  }

  RowNormalizationSpec spec_;
  FloatRow normalized_;
  FloatRow gradient_;
  Sums sums_[2];  // of gamma and beta
};

}  // namespace
}  // namespace lockstep::model::cpu

namespace lockstep::model {

std::unique_ptr<Operation> RowNormalization::compile_cpu(const CompileContext& context,
                                                         cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::RowNormalizationOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::RowNormalizationOperation<float>>(spec(context));
}

}  // namespace lockstep::model
