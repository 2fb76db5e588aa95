#include <Eigen/Core>
#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/embedding/embedding.h"
#include "lockstep/model/layers/embedding/positional_embedding.h"

namespace lockstep::inline v0::model::cpu {
namespace {

template <int kSize>
using RowSize = std::integral_constant<int, kSize>;

template <typename T, int kSize>
using EmbeddingRow = Eigen::Map<Eigen::Array<T, kSize, 1>>;

// Calls use(size) with common dimensions as constants: a row is then a few instructions instead of
// a call or a loop.
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
    if (!t.add_parameter_gradient) std::ranges::fill(t.parameter_gradients[0], 0.0f);
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

  // Adds rows in the order of the batch.
  template <typename T>
  void add_rows(const Operands& t) const {
    auto* const gradients = static_cast<T*>(t.output_gradient.data());
    float* const sums = t.parameter_gradients[0].data();
    with_row_size(dimension_, [&]<int kSize>(RowSize<kSize>) {
      for_each_row(t.indices, [&](std::size_t place, std::size_t in_table, Eigen::Index size) {
        if constexpr (std::is_same_v<T, float>)
          EmbeddingRow<T, kSize>(sums + in_table, size) +=
              EmbeddingRow<T, kSize>(gradients + place, size);
        else
          add_to(sums + in_table, gradients + place, kSize == Eigen::Dynamic ? size : kSize);
      });
    });
  }

  // Calls use(place, in_table, size) with the offsets of each row in the batch and in the table.
  template <typename Indices, typename Use>
  void for_each_row(const Indices& indices, const Use& use) const {
    const std::size_t dimension = dimension_;
    for (std::size_t i = 0; i < indices.size(); ++i)
      use(i * dimension, static_cast<std::size_t>(indices[i]) * dimension,
          static_cast<Eigen::Index>(dimension));
  }

  std::size_t dimension_;
};

// Adds the same rows of a table to each sample.
template <typename T>
class PositionalEmbeddingOperation final : public Operation {
 public:
  PositionalEmbeddingOperation(const PositionalEmbeddingSpec& spec, const std::vector<float>& table)
      : spec_(spec), table_(table.begin(), table.end()) {}

  Needs needs() const override {
    return {.inputs_in_backward = false,
            .output_in_backward = false,
            .in_place = true,
            .skips_frozen = true};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    const T* const table =
        (table_.empty() ? static_cast<const T*>(t.weights[0].data()) : table_.data()) +
        pass.position * spec_.width;
    for (std::int64_t sample = 0; sample < spec_.samples; ++sample)
      add(sample_data(t.inputs[0], sample), table, spec_.elements, sample_data(t.output, sample));
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (!t.parameter_gradients.empty() && !t.parameter_gradients[0].empty()) sum_samples(t);
    if (!t.input_gradients[0].empty() && t.input_gradients[0].data() != t.output_gradient.data())
      std::copy_n(static_cast<const T*>(t.output_gradient.data()), t.output_gradient.size(),
                  static_cast<T*>(t.input_gradients[0].data()));
  }

 private:
  T* sample_data(const TensorView& view, std::int64_t sample) const {
    return static_cast<T*>(view.data()) + sample * spec_.elements;
  }

  // Sums in the order of the batch, by parts of the table that stay in the cache. Rows without a
  // position are set to 0.
  void sum_samples(const Operands& t) const {
    constexpr std::int64_t kPart = 4096;
    float* const sums = t.parameter_gradients[0].data();
    for (std::int64_t begin = 0; begin < spec_.elements; begin += kPart) {
      const std::int64_t count = std::min(kPart, spec_.elements - begin);
      std::fill_n(sums + begin, count, 0.0f);
      for (std::int64_t sample = 0; sample < spec_.samples; ++sample)
        add_to(sums + begin, sample_data(t.output_gradient, sample) + begin, count);
    }
    std::ranges::fill(t.parameter_gradients[0].subspan(static_cast<std::size_t>(spec_.elements)),
                      0.0f);
  }

  PositionalEmbeddingSpec spec_;
  std::vector<T> table_;  // empty if it is a parameter
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Embedding::compile_cpu(const CompileContext& context,
                                                  cpu::Context& /*cpu*/) const {
  return std::make_unique<cpu::EmbeddingOperation>(spec(context));
}

std::unique_ptr<Operation> PositionalEmbedding::compile_cpu(const CompileContext& context,
                                                            cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::PositionalEmbeddingOperation<Eigen::bfloat16>>(
        spec(context), fixed_table(context));
  return std::make_unique<cpu::PositionalEmbeddingOperation<float>>(spec(context),
                                                                    fixed_table(context));
}

}  // namespace lockstep::inline v0::model
