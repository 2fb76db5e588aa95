#include <Eigen/Core>
#include <algorithm>
#include <type_traits>

#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/embedding/embedding.h"

namespace lockstep::model::cpu {
namespace {

template <int kSize>
using RowSize = std::integral_constant<int, kSize>;

template <typename T, int kSize>
using EmbeddingRow = Eigen::Map<Eigen::Array<T, kSize, 1>>;

// Calls use(size) with the dimension as a constant where it is a usual one: a row is then a few
// instructions, in place of a call or a loop.
template <typename Use>
void with_row_size(std::size_t dimension, const Use& use) {
  switch (dimension) {
    case 1:
      return use(RowSize<1>());
    case 2:
      return use(RowSize<2>());
    case 4:
      return use(RowSize<4>());
    case 8:
      return use(RowSize<8>());
    case 16:
      return use(RowSize<16>());
    case 32:
      return use(RowSize<32>());
    default:
      return use(RowSize<Eigen::Dynamic>());
  }
}

class EmbeddingOperation final : public Operation {
 public:
  explicit EmbeddingOperation(const EmbeddingSpec& spec)
      : dimension_(static_cast<std::size_t>(spec.dimension)) {}

  Needs needs() const override { return {.output_in_backward = false}; }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    if (t.output.type() == Precision::float32)
      copy_rows<float>(t);
    else
      copy_rows<Eigen::bfloat16>(t);
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    std::ranges::fill(t.parameter_gradients[0], 0.0f);
    if (t.output_gradient.type() == Precision::float32)
      add_rows<float>(t);
    else
      add_rows<Eigen::bfloat16>(t);
  }

 private:
  template <typename T>
  void copy_rows(const Operands& t) const {
    auto* const table = static_cast<T*>(t.weights[0].data());
    auto* const output = static_cast<T*>(t.output.data());
    with_row_size(dimension_, [&]<int kSize>(RowSize<kSize>) {
      for_each_row(t.indices, [&](std::size_t place, std::size_t in_table, Eigen::Index size) {
        EmbeddingRow<T, kSize>(output + place, size) =
            EmbeddingRow<T, kSize>(table + in_table, size);
      });
    });
  }

  // In the order of the batch.
  template <typename T>
  void add_rows(const Operands& t) const {
    auto* const gradients = static_cast<T*>(t.output_gradient.data());
    float* const sums = t.parameter_gradients[0].data();
    with_row_size(dimension_, [&]<int kSize>(RowSize<kSize>) {
      for_each_row(t.indices, [&](std::size_t place, std::size_t in_table, Eigen::Index size) {
        EmbeddingRow<float, kSize>(sums + in_table, size) +=
            EmbeddingRow<T, kSize>(gradients + place, size).template cast<float>();
      });
    });
  }

  // Calls use(place, in_table, size) with where each row begins in the batch and in the table.
  template <typename Indices, typename Use>
  void for_each_row(const Indices& indices, const Use& use) const {
    const std::size_t dimension = dimension_;
    for (std::size_t i = 0; i < indices.size(); ++i)
      use(i * dimension, static_cast<std::size_t>(indices[i]) * dimension,
          static_cast<Eigen::Index>(dimension));
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
