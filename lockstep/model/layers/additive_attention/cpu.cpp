#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/additive_attention/additive_attention.h"
#include "lockstep/model/layers/attention/row_product.h"

namespace lockstep::inline v0::model::cpu {
namespace {

// The float32 memory of one thread for one sample. Rows are padded with zeros to whole cache lines.
struct AdditiveWorkspace {
  PaddedRows<float> keys;               // [S, U]
  PaddedRows<float> values;             // [S, D]
  PaddedRows<float> queries;            // [kTileRows, U], a block of queries
  PaddedRows<float> outputs;            // [kTileRows, D], or their gradients
  PaddedRows<float> weights;            // [kTileRows, S], without training
  PaddedRows<float> values_transposed;  // [D, S]
  PaddedRows<float> key_gradients;      // [S, U]
  PaddedRows<float> value_gradients;    // [S, D]
  PaddedRows<float> query_gradients;    // [kTileRows, U]
  PaddedRows<float> score_gradients;    // [kTileRows, S]
};

// Blocks of queries of a sample, with all keys. Forward saves the weights [T, S]; the T · S · U
// hyperbolic tangents are computed again in backward. The results of a sample depend neither on the
// batch nor on the number of threads.
template <typename T>
class AdditiveAttentionOperation final : public Operation {
 public:
  explicit AdditiveAttentionOperation(const AdditiveAttentionSpec& spec)
      : spec_(spec),
        unit_row_(lines_of(spec.units)),
        value_row_(lines_of(spec.width)),
        key_row_(lines_of(spec.keys)),
        workers_(static_cast<int>(std::clamp<std::int64_t>(spec.batch, 1, thread_budget()))) {}

  Needs needs() const override {
    const std::int64_t saved = spec_.training ? spec_.batch * spec_.queries * key_row_ : 0;
    const std::int64_t scratch = shared_elements() + workers_ * workspace(nullptr).second;
    return {.output_in_backward = false,
            .skips_frozen = true,
            .saved_bytes = static_cast<std::size_t>(saved) * sizeof(float),
            .scratch_bytes = static_cast<std::size_t>(scratch) * sizeof(float)};
  }

  void forward(const Operands& t, const PassContext& /*pass*/) override {
    load_scale(t);
    for_each_sample(t, [&](std::int64_t sample, const AdditiveWorkspace& w) {
      load(t.inputs[1], sample * spec_.keys, spec_.keys, spec_.units, w.keys);
      load(t.inputs[2], sample * spec_.keys, spec_.keys, spec_.width, w.values);
      for_each_block([&](std::int64_t first, std::int64_t rows) {
        const std::int64_t row = sample * spec_.queries + first;
        load(t.inputs[0], row, rows, spec_.units, w.queries);
        const PaddedRows<float> weights = weights_of(t, row, w);
        for (std::int64_t r = 0; r < rows; ++r) weigh(t, sample, w, r, weights.from(r).data);
        multiply<false>({weights.data, key_row_, 1}, rows, constant(w.values), spec_.keys,
                        w.outputs, value_row_);
        store(w.outputs, rows, spec_.width, t.output, row);
      });
    });
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    const bool trains = !t.parameter_gradients[0].empty();
    if (!trains && std::ranges::all_of(t.input_gradients, &TensorView::empty)) return;
    load_scale(t);
    for_each_sample(t, [&](std::int64_t sample, const AdditiveWorkspace& w) {
      load(t.inputs[1], sample * spec_.keys, spec_.keys, spec_.units, w.keys);
      load(t.inputs[2], sample * spec_.keys, spec_.keys, spec_.width, w.values);
      transpose_values(w);
      std::fill_n(w.key_gradients.data, spec_.keys * unit_row_, 0.0f);
      std::fill_n(w.value_gradients.data, spec_.keys * value_row_, 0.0f);
      float* const scale_gradient = scale_gradients(t) + sample * unit_row_;
      std::fill_n(scale_gradient, unit_row_, 0.0f);
      for_each_block([&](std::int64_t first, std::int64_t rows) {
        const std::int64_t row = sample * spec_.queries + first;
        load(t.inputs[0], row, rows, spec_.units, w.queries);
        load(t.output_gradient, row, rows, spec_.width, w.outputs);
        add_gradients(t, sample, rows, weights_of(t, row, w), w, scale_gradient);
        if (!t.input_gradients[0].empty())
          store(w.query_gradients, rows, spec_.units, t.input_gradients[0], row);
      });
      const std::int64_t row = sample * spec_.keys;
      if (!t.input_gradients[1].empty())
        store(w.key_gradients, spec_.keys, spec_.units, t.input_gradients[1], row);
      if (!t.input_gradients[2].empty())
        store(w.value_gradients, spec_.keys, spec_.width, t.input_gradients[2], row);
    });
    if (trains) add_scale_gradients(t);
  }

 private:
  // The scale, and in training its gradient for each sample.
  std::int64_t shared_elements() const {
    return unit_row_ * (1 + (spec_.training ? spec_.batch : 0));
  }
  float* scale(const Operands& t) const { return reinterpret_cast<float*>(t.scratch.data()); }
  float* scale_gradients(const Operands& t) const { return scale(t) + unit_row_; }

  // The workspace at `begin`, and its elements.
  std::pair<AdditiveWorkspace, std::int64_t> workspace(float* begin) const {
    std::int64_t used = 0;
    const auto rows = [&](std::int64_t count, std::int64_t stride) {
      const PaddedRows<float> result{begin == nullptr ? nullptr : begin + used, stride};
      used += count * stride;
      return result;
    };
    const std::int64_t trained = spec_.training ? 1 : 0;
    AdditiveWorkspace w{};
    w.keys = rows(spec_.keys, unit_row_);
    w.values = rows(spec_.keys, value_row_);
    w.queries = rows(kTileRows, unit_row_);
    w.outputs = rows(kTileRows, value_row_);
    w.weights = rows((1 - trained) * kTileRows, key_row_);
    w.values_transposed = rows(trained * spec_.width, key_row_);
    w.key_gradients = rows(trained * spec_.keys, unit_row_);
    w.value_gradients = rows(trained * spec_.keys, value_row_);
    w.query_gradients = rows(trained * kTileRows, unit_row_);
    w.score_gradients = rows(trained * kTileRows, key_row_);
    return {w, used};
  }

  // Calls task(sample, workspace) in the threads of the replica.
  template <typename Task>
  void for_each_sample(const Operands& t, const Task& task) const {
    float* const scratch = reinterpret_cast<float*>(t.scratch.data()) + shared_elements();
    const std::int64_t each = workspace(nullptr).second;
#pragma omp parallel for num_threads(std::min(workers_, thread_budget())) schedule(static)
    for (std::int64_t sample = 0; sample < spec_.batch; ++sample)
      task(sample, workspace(scratch + omp_get_thread_num() * each).first);
  }

  // Calls visit(first, rows) for the blocks of queries.
  template <typename Visit>
  void for_each_block(const Visit& visit) const {
    for (std::int64_t first = 0; first < spec_.queries; first += kTileRows)
      visit(first, std::min(kTileRows, spec_.queries - first));
  }

  // Copies rows from `row` on to padded rows.
  static void load(const TensorView& from, std::int64_t row, std::int64_t rows, std::int64_t count,
                   PaddedRows<float> to) {
    for (std::int64_t i = 0; i < rows; ++i) {
      float* const target = to.from(i).data;
      widen(static_cast<const T*>(from.data()) + (row + i) * count, count, target);
      std::fill(target + count, target + to.stride, 0.0f);
    }
  }
  static void store(PaddedRows<float> from, std::int64_t rows, std::int64_t count,
                    const TensorView& to, std::int64_t row) {
    for (std::int64_t i = 0; i < rows; ++i)
      narrow(from.from(i).data, count, static_cast<T*>(to.data()) + (row + i) * count);
  }
  void load_scale(const Operands& t) const {
    std::copy_n(t.parameters[0].data(), spec_.units, scale(t));
    std::fill_n(scale(t) + spec_.units, unit_row_ - spec_.units, 0.0f);
  }
  static PaddedRows<const float> constant(PaddedRows<float> rows) {
    return {rows.data, rows.stride};
  }

  // The weights of the queries from row `row` on.
  PaddedRows<float> weights_of(const Operands& t, std::int64_t row,
                               const AdditiveWorkspace& w) const {
    if (!spec_.training) return w.weights;
    return {reinterpret_cast<float*>(t.saved.data()) + row * key_row_, key_row_};
  }

  // The segments of the keys of a sample; null: there is no padding.
  const std::int32_t* segments(const Operands& t, std::int64_t sample) const {
    return spec_.has_segments ? t.indices.data() + sample * spec_.keys : nullptr;
  }

  // Writes the weights of query `r` of a block.
  void weigh(const Operands& t, std::int64_t sample, const AdditiveWorkspace& w, std::int64_t r,
             float* weights) const {
    constexpr float kPaddingScore = std::numeric_limits<float>::lowest();  // a score
    const std::int32_t* const key_segments = segments(t, sample);
    float* const query = w.queries.from(r).data;
    float* const factors = scale(t);
    std::fill_n(weights, key_row_, kPaddingScore);
    bool any = false;
    for (std::int64_t s = 0; s < spec_.keys; ++s) {
      if (key_segments != nullptr && key_segments[s] == 0) continue;
      any = true;
      float* const key = w.keys.from(s).data;
      Line sum = Line::Zero();
      for (std::int64_t u = 0; u < unit_row_; u += kLine)
        sum += line(factors + u) * (line(query + u) + line(key + u)).tanh();
      weights[s] = sum.sum();
    }
    if (!any) {
      std::fill_n(weights, key_row_, 0.0f);
      return;
    }
    const float largest = row_max(weights, key_row_);
    for (std::int64_t s = 0; s < key_row_; s += kLine)
      line(weights + s) = (line(weights + s) - largest).exp();
    for (std::int64_t s = 0; s < key_row_; ++s)  // exp may be above 0
      if (s >= spec_.keys || (key_segments != nullptr && key_segments[s] == 0)) weights[s] = 0;
    scale_row(weights, key_row_, 1 / row_sum(weights, key_row_));
  }

  void transpose_values(const AdditiveWorkspace& w) const {
    std::fill_n(w.values_transposed.data, spec_.width * key_row_, 0.0f);
    for (std::int64_t s = 0; s < spec_.keys; ++s) {
      const float* const from = w.values.from(s).data;
      for (std::int64_t d = 0; d < spec_.width; ++d) w.values_transposed.from(d).data[s] = from[d];
    }
  }

  // The gradients of a block of queries, and its contribution to the other gradients.
  void add_gradients(const Operands& t, std::int64_t sample, std::int64_t rows,
                     PaddedRows<float> weights, const AdditiveWorkspace& w,
                     float* scale_gradient) const {
    multiply<false>({w.outputs.data, value_row_, 1}, rows, constant(w.values_transposed),
                    spec_.width, w.score_gradients, key_row_);
    for (std::int64_t s = 0; s < spec_.keys; s += kTileRows)
      multiply<true>({weights.data + s, 1, key_row_}, std::min(kTileRows, spec_.keys - s),
                     constant(w.outputs), rows, w.value_gradients.from(s), value_row_);
    for (std::int64_t r = 0; r < rows; ++r) {
      float* const weight = weights.from(r).data;
      float* const gradient = w.score_gradients.from(r).data;
      Line products = Line::Zero();
      for (std::int64_t s = 0; s < key_row_; s += kLine)
        products += line(weight + s) * line(gradient + s);
      const float product = products.sum();
      for (std::int64_t s = 0; s < key_row_; s += kLine)
        line(gradient + s) = line(weight + s) * (line(gradient + s) - product);
      add_query_gradients(t, sample, r, gradient, w, scale_gradient);
    }
  }

  // The gradients of the inputs of the scores of query `r` of a block.
  void add_query_gradients(const Operands& t, std::int64_t sample, std::int64_t r,
                           const float* gradient, const AdditiveWorkspace& w,
                           float* scale_gradient) const {
    const std::int32_t* const key_segments = segments(t, sample);
    float* const query = w.queries.from(r).data;
    float* const query_gradient = w.query_gradients.from(r).data;
    float* const factors = scale(t);
    std::fill_n(query_gradient, unit_row_, 0.0f);
    for (std::int64_t s = 0; s < spec_.keys; ++s) {
      if (key_segments != nullptr && key_segments[s] == 0) continue;
      float* const key = w.keys.from(s).data;
      float* const key_gradient = w.key_gradients.from(s).data;
      for (std::int64_t u = 0; u < unit_row_; u += kLine) {
        const Line value = (line(query + u) + line(key + u)).tanh();
        const Line slope = gradient[s] * line(factors + u) * (1 - value.square());
        line(scale_gradient + u) += gradient[s] * value;
        line(query_gradient + u) += slope;
        line(key_gradient + u) += slope;
      }
    }
  }

  // Adds the gradients of all samples, in order.
  void add_scale_gradients(const Operands& t) const {
    for (std::int64_t u = 0; u < spec_.units; ++u) {
      double sum = 0;
      for (std::int64_t sample = 0; sample < spec_.batch; ++sample)
        sum += static_cast<double>(scale_gradients(t)[sample * unit_row_ + u]);
      t.parameter_gradients[0][static_cast<std::size_t>(u)] = static_cast<float>(sum);
    }
  }

  AdditiveAttentionSpec spec_;
  std::int64_t unit_row_;  // elements of padded rows
  std::int64_t value_row_;
  std::int64_t key_row_;
  int workers_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> AdditiveAttention::compile_cpu(const CompileContext& context,
                                                          cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::AdditiveAttentionOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::AdditiveAttentionOperation<float>>(spec(context));
}

}  // namespace lockstep::inline v0::model
