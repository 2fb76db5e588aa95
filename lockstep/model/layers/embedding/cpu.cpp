#include <Eigen/Core>
#include <algorithm>
#include <cstring>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/embedding/embedding.h"

namespace lockstep::model::cpu {
namespace {

class EmbeddingOperation final : public Operation {
 public:
  explicit EmbeddingOperation(const EmbeddingSpec& spec)
      : dimension_(static_cast<std::size_t>(spec.dimension)) {}

  Needs needs() const override { return {.output_in_backward = false}; }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    const TensorView& table = t.weights[0];
    const std::size_t row = dimension_ * element_bytes(table.type());
    for (std::size_t i = 0; i < t.indices.size(); ++i)
      std::memcpy(static_cast<std::byte*>(t.output.data()) + i * row,
                  static_cast<const std::byte*>(table.data()) +
                      static_cast<std::size_t>(t.indices[i]) * row,
                  row);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    std::ranges::fill(t.parameter_gradients[0], 0.0f);
    if (t.output_gradient.type() == Precision::float32)
      add_rows<float>(t);
    else
      add_rows<Eigen::bfloat16>(t);
  }

 private:
  // In the order of the batch.
  template <typename T>
  void add_rows(const Operands& t) const {
    using Row = Eigen::Map<Eigen::Array<T, Eigen::Dynamic, 1>>;
    using Sum = Eigen::Map<Eigen::Array<float, Eigen::Dynamic, 1>>;
    const auto size = static_cast<Eigen::Index>(dimension_);
    auto* const gradients = static_cast<T*>(t.output_gradient.data());
    for (std::size_t i = 0; i < t.indices.size(); ++i) {
      const auto index = static_cast<std::size_t>(t.indices[i]);
      Sum(t.parameter_gradients[0].data() + index * dimension_, size) +=
          Row(gradients + i * dimension_, size).template cast<float>();
    }
  }

  std::size_t dimension_;
};

}  // namespace
}  // namespace lockstep::model::cpu

namespace lockstep::model {

std::unique_ptr<Operation> Embedding::compile_cpu(const CompileContext& context,
                                                  cpu::Context& /*cpu*/) const {
  return std::make_unique<cpu::EmbeddingOperation>(spec(context));
}

}  // namespace lockstep::model
