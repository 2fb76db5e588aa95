#include <Eigen/Core>
#include <algorithm>
#include <memory>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/sequence_pooling/sequence_pooling.h"

namespace lockstep::inline v0::model::cpu {
namespace {

template <typename T>
class SequenceMeanOperation final : public Operation {
 public:
  explicit SequenceMeanOperation(const SequencePoolingSpec& spec) : spec_(spec), sum_(spec.width) {}

  Needs needs() const override {
    return {.inputs_in_backward = spec_.has_segments, .output_in_backward = false};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    for (std::int64_t sample = 0; sample < spec_.samples; ++sample) {
      sum_.setZero();
      for (std::int64_t position = 0; position < spec_.positions; ++position)
        if (counts(t, sample, position))
          add_to(sum_.data(), row(t.inputs[0], sample * spec_.positions + position), spec_.width);
      sum_ *= weight(t, sample);
      narrow(sum_.data(), spec_.width, row(t.output, sample));
    }
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (t.input_gradients[0].empty()) return;
    for (std::int64_t sample = 0; sample < spec_.samples; ++sample) {
      widen(row(t.output_gradient, sample), spec_.width, sum_.data());
      sum_ *= weight(t, sample);
      for (std::int64_t position = 0; position < spec_.positions; ++position) {
        T* const to = row(t.input_gradients[0], sample * spec_.positions + position);
        if (counts(t, sample, position))
          narrow(sum_.data(), spec_.width, to);
        else
          std::fill_n(to, spec_.width, T(0));
      }
    }
  }

 private:
  T* row(const TensorView& view, std::int64_t index) const {
    return static_cast<T*>(view.data()) + index * spec_.width;
  }
  bool counts(const Operands& t, std::int64_t sample, std::int64_t position) const {
    return !spec_.has_segments ||
           t.indices[static_cast<std::size_t>(sample * spec_.positions + position)] != 0;
  }
  // The weight of each position of a sample that counts; 0 if there is none.
  float weight(const Operands& t, std::int64_t sample) const {
    std::int64_t count = 0;
    for (std::int64_t position = 0; position < spec_.positions; ++position)
      count += counts(t, sample, position) ? 1 : 0;
    return count > 0 ? 1 / static_cast<float>(count) : 0;
  }

  SequencePoolingSpec spec_;
  Eigen::ArrayXf sum_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> GlobalAveragePooling1D::compile_cpu(const CompileContext& context,
                                                               cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::SequenceMeanOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::SequenceMeanOperation<float>>(spec(context));
}

}  // namespace lockstep::inline v0::model
