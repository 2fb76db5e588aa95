#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/system/host.h"
#include "lockstep/model/cpu/onednn.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/attention/head_copies.h"
#include "lockstep/model/layers/attention/row_product.h"

namespace lockstep::inline v0::model::cpu {
namespace {

constexpr std::int64_t kBlock = 64;  // queries, and keys, per block of scores
constexpr float kHidden = std::numeric_limits<float>::lowest();  // a score

// The float32 memory of one thread for one head of keys and values. Rows of a head are padded with
// zeros to whole cache lines.
struct AttentionWorkspace {
  PaddedRows<float> keys, values;                        // [S, E]
  PaddedRows<float> keys_transposed, values_transposed;  // [E, S]
  PaddedRows<float> key_gradients, value_gradients;      // [S, E]
  PaddedRows<float> queries;  // a block of queries; also the arrays below
  PaddedRows<float> outputs;  // in backward, the gradients of the queries
  PaddedRows<float> output_gradients;
  PaddedRows<float> weights;          // [queries, keys]: scores, then their softmax
  PaddedRows<float> score_gradients;  // [queries, keys]
  float* maxima;                      // per query, of its scores
  float* sums;        // per query, of its weights; in backward, weights times their gradients
  std::int64_t next;  // index of the next sample and head, or -1
};

// One block of scores.
struct AttentionBlock {
  std::int64_t first_query, queries;
  std::int64_t first_key, keys;
  std::int64_t earlier;          // query i sees keys 0 .. earlier + i of the block
  const std::int32_t* segments;  // segments of the sample; null: none

  // Elements of the rows `i` to `i` + kTileRows - 1, a part of a cache line, that are computed.
  std::int64_t extent_of(std::int64_t i) const { return lines_of(visible_to(i)); }
  // Number of keys visible to any of these rows.
  std::int64_t visible_to(std::int64_t i) const { return std::min(earlier + i + kTileRows, keys); }
  // Replaces the first `extent` scores where query `i` does not see the key.
  void hide(float* row, std::int64_t i, std::int64_t extent, float replacement) const {
    std::int64_t visible = std::min(earlier + i + 1, keys);
    if (segments != nullptr) {
      const std::int32_t own = segments[first_query + i];
      const std::int32_t* const others = segments + first_key;
      if (own == 0) visible = 0;
      for (std::int64_t j = 0; j < visible; ++j) row[j] = others[j] == own ? row[j] : replacement;
    }
    const Lanes replacements = lanes_of(replacement);
    for (std::int64_t j = visible / kLanes * kLanes; j < extent; j += kLanes)
      lanes(row + j) =
          lane_numbers() < static_cast<std::int32_t>(visible - j) ? lanes(row + j) : replacements;
  }
};

// Blocks of queries and keys whose scores are in the cache, with the softmax updated block by block
// (Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). Backward recomputes the
// scores. All arithmetic is on aligned copies of one head of one sample: results depend neither on
// the batch nor on the number of threads.
template <typename T>
class AttentionOperation final : public Operation {
 public:
  explicit AttentionOperation(const AttentionSpec& spec)
      : spec_(spec),
        copies_(spec),
        row_(copies_.row()),
        key_row_(lines_of(spec.keys)),
        workers_(static_cast<int>(
            std::clamp<std::int64_t>(spec.batch * spec.key_value_heads, 1, thread_budget()))) {}

  Needs needs() const override {
    return {.saved_bytes = spec_.saved_bytes(),
            .scratch_bytes =
                static_cast<std::size_t>(workers_) * workspace(nullptr).second * sizeof(float),
            .cache_bytes = spec_.cached
                               ? static_cast<std::size_t>(spec_.batch * spec_.key_value_heads *
                                                          cache_elements()) *
                                     sizeof(float)
                               : 0};
  }

  void forward(const Operands& t, const PassContext& pass) override {
    const std::int64_t begin = spec_.cached ? pass.position : 0;
    const std::int64_t rows = spec_.cached ? spec_.queries : spec_.keys;
    copies_.begin_at(begin);
    for_each_head(t, [&](std::int64_t sample, std::int64_t shared, const AttentionWorkspace& w) {
      copies_.load(t, 1, sample, shared, begin, rows, 1, w.keys);
      if (spec_.cached)
        add_columns(w.keys, w.keys_transposed, begin);
      else
        transpose(right(w.keys, 0), spec_.keys, spec_.width, w.keys_transposed);
      copies_.load(t, 2, sample, shared, begin, rows, 1, w.values.from(begin));
      for_each_query_block(shared, begin,
                           [&](std::int64_t head, std::int64_t first, std::int64_t count) {
                             attend(t, sample, head, first, count, w);
                           });
    });
  }

  void backward(const Operands& t, const PassContext& /*pass*/) override {
    if (std::ranges::all_of(t.input_gradients, &TensorView::empty)) return;
    for_each_head(t, [&](std::int64_t sample, std::int64_t shared, const AttentionWorkspace& w) {
      copies_.load(t, 1, sample, shared, 0, spec_.keys, 1, w.keys);
      transpose(right(w.keys, 0), spec_.keys, spec_.width, w.keys_transposed);
      copies_.load(t, 2, sample, shared, 0, spec_.keys, 1, w.values);
      transpose(right(w.values, 0), spec_.keys, spec_.width, w.values_transposed);
      for_each_query_block(shared, 0,
                           [&](std::int64_t head, std::int64_t first, std::int64_t count) {
                             add_gradients(t, sample, head, first, count, w);
                           });
      copies_.store_gradient(t, 1, sample, shared, 0, spec_.keys, 1, w.key_gradients);
      copies_.store_gradient(t, 2, sample, shared, 0, spec_.keys, 1, w.value_gradients);
    });
  }

 private:
  // The workspace at `begin`, and its elements.
  std::pair<AttentionWorkspace, std::size_t> workspace(float* begin) const {
    std::int64_t used = 0;
    const auto rows = [&](std::int64_t count, std::int64_t stride) {
      const PaddedRows<float> result{begin == nullptr ? nullptr : begin + used, stride};
      used += count * stride;
      return result;
    };
    const std::int64_t trained = spec_.training ? 1 : 0;
    AttentionWorkspace w{};
    w.keys = rows(spec_.cached ? spec_.queries : spec_.keys, row_);
    if (!spec_.cached) place_values(rows(1, cache_elements()).data, w);
    w.queries = rows(kBlock, row_);
    w.outputs = rows(kBlock, row_);
    w.weights = rows(kBlock, kBlock);
    w.maxima = rows(1, kBlock).data;
    w.sums = rows(1, kBlock).data;
    w.values_transposed = rows(trained * spec_.width, key_row_);
    w.key_gradients = rows(trained * spec_.keys, row_);
    w.value_gradients = rows(trained * spec_.keys, row_);
    w.output_gradients = rows(trained * kBlock, row_);
    w.score_gradients = rows(trained * kBlock, kBlock);
    return {w, static_cast<std::size_t>(used)};
  }

  // Values and transposed keys of one head are in one array, which is part of the cache, if any.
  std::int64_t cache_elements() const { return spec_.keys * row_ + spec_.width * key_row_; }
  void place_values(float* array, AttentionWorkspace& w) const {
    w.values = {array, row_};
    w.keys_transposed = {array == nullptr ? nullptr : array + spec_.keys * row_, key_row_};
  }

  // Calls task(sample, head of keys and values, workspace) in the threads of the replica.
  template <typename Task>
  void for_each_head(const Operands& t, const Task& task) const {
    auto* const scratch = reinterpret_cast<float*>(t.scratch.data());
    const std::size_t each = workspace(nullptr).second;
    const std::int64_t tasks = spec_.batch * spec_.key_value_heads;
#pragma omp parallel for num_threads(std::min(workers_, thread_budget())) schedule(static)
    for (std::int64_t i = 0; i < tasks; ++i) {
      AttentionWorkspace w =
          workspace(scratch + static_cast<std::size_t>(omp_get_thread_num()) * each).first;
      if (spec_.cached)
        place_values(reinterpret_cast<float*>(t.cache.data()) + i * cache_elements(), w);
      w.next = i + 1 < tasks && !spec_.cached ? i + 1 : -1;
      task(i / spec_.key_value_heads, i % spec_.key_value_heads, w);
    }
  }

  // Prefetches rows of the next head of keys and values during the products of the current one.
  void prefetch_next(const Operands& t, std::int64_t head, std::int64_t first, std::int64_t count,
                     bool in_backward, const AttentionWorkspace& w) const {
    if (w.next < 0 || head % spec_.group() > 0) return;
    const std::int64_t sample = w.next / spec_.key_value_heads;
    const std::int64_t shared = w.next % spec_.key_value_heads;
    const std::int64_t query_head = shared * spec_.group();
    copies_.prefetch_rows(t.inputs, 0, sample, query_head, first, count);
    for (const std::size_t part : {1U, 2U})
      copies_.prefetch_rows(t.inputs, part, sample, shared, first,
                            std::min(count, spec_.keys - first));
    if (!in_backward) return;
    copies_.prefetch_outputs(t.output, sample, query_head, first, count);
    copies_.prefetch_outputs(t.output_gradient, sample, query_head, first, count);
  }

  // Calls visit(head, first query, queries) for the heads of the group `shared`. Queries begin at
  // position `begin`; blocks end where blocks of keys end.
  template <typename Visit>
  void for_each_query_block(std::int64_t shared, std::int64_t begin, const Visit& visit) const {
    const std::int64_t end = begin + spec_.queries;
    for (std::int64_t head = shared * spec_.group(); head < (shared + 1) * spec_.group(); ++head)
      for (std::int64_t first = begin, count = 0; first < end; first += count) {
        count = std::min(kBlock - first % kBlock, end - first);
        visit(head, first, count);
      }
  }

  // Calls visit(block) for the blocks of keys that may be visible to the queries.
  template <typename Visit>
  void for_each_key_block(const Operands& t, std::int64_t sample, std::int64_t first,
                          std::int64_t count, const Visit& visit) const {
    const std::int64_t end = spec_.causal ? first + count : spec_.keys;
    for (std::int64_t key = 0; key < end; key += kBlock)
      visit(AttentionBlock{.first_query = first,
                           .queries = count,
                           .first_key = key,
                           .keys = std::min(kBlock, spec_.keys - key),
                           .earlier = spec_.causal ? first - key : kBlock,
                           .segments = t.indices.empty() || spec_.cached
                                           ? nullptr
                                           : t.indices.data() + sample * spec_.queries});
  }

  // Calls visit(first, rows) for the tiles of rows.
  template <typename Visit>
  static void for_rows(std::int64_t rows, const Visit& visit) {
    for (std::int64_t i = 0; i < rows; i += kTileRows) visit(i, std::min(kTileRows, rows - i));
  }

  static LeftFactor left(PaddedRows<float> rows, std::int64_t first) {
    return {rows.data + first * rows.stride, rows.stride, 1};
  }
  static LeftFactor left_transposed(PaddedRows<float> rows, std::int64_t row, std::int64_t column) {
    return {rows.data + row * rows.stride + column, 1, rows.stride};
  }
  static PaddedRows<const float> right(PaddedRows<float> rows, std::int64_t row,
                                       std::int64_t column = 0) {
    return {rows.data + row * rows.stride + column, rows.stride};
  }

  float* saved_row(const Operands& t, std::int64_t sample, std::int64_t head) const {
    return reinterpret_cast<float*>(t.saved.data()) + (sample * spec_.heads + head) * spec_.queries;
  }

  // Writes rows to columns from `first` on.
  void add_columns(PaddedRows<float> rows, PaddedRows<float> columns, std::int64_t first) const {
    for (std::int64_t e = 0; e < spec_.width; ++e)
      for (std::int64_t i = 0; i < spec_.queries; ++i)
        columns.from(e).data[first + i] = rows.from(i).data[e];
  }

  // The output of a block of queries.
  void attend(const Operands& t, std::int64_t sample, std::int64_t head, std::int64_t first,
              std::int64_t count, const AttentionWorkspace& w) const {
    copies_.load(t, 0, sample, head, first, count, spec_.scale, w.queries);
    std::fill_n(w.maxima, count, kHidden);
    std::fill_n(w.sums, count, 0.0f);
    for_each_key_block(t, sample, first, count, [&](const AttentionBlock& block) {
      for_rows(count, [&](std::int64_t i, std::int64_t rows) {
        const std::int64_t extent = block.extent_of(i);
        if (block.first_key == 0) {
          prefetch_next(t, head, first + i, rows, false, w);
          copies_.prefetch_outputs(t.output, sample, head, first + i, rows);
        }
        multiply<false>(left(w.queries, i), rows, right(w.keys_transposed, 0, block.first_key),
                        spec_.width, w.weights.from(i), extent);
        if (rows == kTileRows)
          update_softmax<kTileRows>(block, i, extent, w);
        else
          for (std::int64_t r = i; r < i + rows; ++r) update_softmax<1>(block, r, extent, w);
        const auto add = block.first_key > 0 ? multiply<true> : multiply<false>;
        add(left(w.weights, i), rows, right(w.values, block.first_key), block.visible_to(i),
            w.outputs.from(i), row_);
      });
    });
    for (std::int64_t i = 0; i < count; i += kLine) {
      const auto sums = line(w.sums + i);
      if (!t.saved.empty())
        line(w.maxima + i) = (sums > 0).select(line(w.maxima + i) + sums.log(), 0.0f);
      line(w.sums + i) = (sums > 0).select(sums.inverse(), 0.0f);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      copies_.store_output(w.outputs.from(i).data, w.sums[i], t.output, sample, head, first + i);
    }
    if (!t.saved.empty()) std::copy_n(w.maxima, count, saved_row(t, sample, head) + first);
  }

  // Replaces the scores of the queries from `i` on by weights relative to the largest score so far,
  // and rescales the sums over earlier blocks.
  template <std::size_t kRows>
  void update_softmax(const AttentionBlock& block, std::int64_t i, std::int64_t extent,
                      const AttentionWorkspace& w) const {
    const PaddedRows<float> weights = w.weights.from(i);
    Lanes largest[kRows];
    for (std::size_t r = 0; r < kRows; ++r) {
      block.hide(weights.from(r).data, i + r, extent, kHidden);
      largest[r] = lanes(weights.from(r).data);
    }
    for (std::int64_t j = kLanes; j < extent; j += kLanes)
      for (std::size_t r = 0; r < kRows; ++r)
        largest[r] = larger(largest[r], lanes(weights.from(r).data + j));
    float maxima[kRows];
    largest_lanes(largest, maxima);
    for (std::size_t r = 0; r < kRows; ++r) maxima[r] = std::max(w.maxima[i + r], maxima[r]);
    for (std::size_t r = 0; block.first_key > 0 && r < kRows; ++r) {
      if (w.maxima[i + r] == maxima[r]) continue;
      const float factor = std::exp(w.maxima[i + r] - maxima[r]);
      w.sums[i + r] *= factor;
      scale_row(w.outputs.from(i + r).data, row_, factor);
    }
    for (std::size_t r = 0; r < kRows; ++r) {
      w.maxima[i + r] = maxima[r];
      maxima[r] = maxima[r] == kHidden ? 0 : maxima[r];  // the weights of hidden keys are 0
    }
    Lanes sums[kRows] = {};
    for (std::int64_t j = 0; j < extent; j += kLanes)
      for (std::size_t r = 0; r < kRows; ++r) {
        Lanes& weight = lanes(weights.from(r).data + j);
        weight = exp_of(weight - maxima[r]);
        sums[r] += weight;
      }
    float totals[kRows];
    sum_lanes(sums, totals);
    for (std::size_t r = 0; r < kRows; ++r) w.sums[i + r] += totals[r];
  }

  // The gradients of a block of queries, and its contribution to those of the keys and values.
  void add_gradients(const Operands& t, std::int64_t sample, std::int64_t head, std::int64_t first,
                     std::int64_t count, const AttentionWorkspace& w) const {
    copies_.load(t, 0, sample, head, first, count, spec_.scale, w.queries);
    for_rows(count, [&](std::int64_t i, std::int64_t rows) {
      Lanes sums[kTileRows] = {};
      for (std::int64_t r = 0; r < rows; ++r) {
        float* const gradient = w.output_gradients.from(i + r).data;
        float* const output = w.outputs.from(i + r).data;
        copies_.load_output(t.output_gradient, sample, head, first + i + r, gradient);
        copies_.load_output(t.output, sample, head, first + i + r, output);
        for (std::int64_t e = 0; e < row_; e += kLanes)
          sums[r] += lanes(output + e) * lanes(gradient + e);
      }
      sum_lanes(sums, w.sums + i);
    });
    std::copy_n(saved_row(t, sample, head) + first, count, w.maxima);
    for_each_key_block(t, sample, first, count, [&](const AttentionBlock& block) {
      for_rows(count, [&](std::int64_t i, std::int64_t rows) {
        const std::int64_t extent = block.extent_of(i);
        if (block.first_key == 0) {
          prefetch_next(t, head, first + i, rows, true, w);
          copies_.prefetch_rows(t.input_gradients, 0, sample, head, first + i, rows);
        }
        multiply<false>(left(w.queries, i), rows, right(w.keys_transposed, 0, block.first_key),
                        spec_.width, w.weights.from(i), extent);
        multiply<false>(left(w.output_gradients, i), rows,
                        right(w.values_transposed, 0, block.first_key), spec_.width,
                        w.score_gradients.from(i), extent);
        for (std::int64_t r = i; r < i + rows; ++r)
          block.hide(w.weights.from(r).data, r, extent, kHidden);
        for (std::int64_t j = 0; j < extent; j += kLanes)
          for (std::int64_t r = i; r < i + rows; ++r) {
            Lanes& weight = lanes(w.weights.from(r).data + j);
            Lanes& gradient = lanes(w.score_gradients.from(r).data + j);
            weight = exp_of(weight - w.maxima[r]);
            gradient = weight * (gradient - w.sums[r]);
          }
        const auto add = block.first_key > 0 ? multiply<true> : multiply<false>;
        add(left(w.score_gradients, i), rows, right(w.keys, block.first_key), block.visible_to(i),
            w.outputs.from(i), row_);
      });
      // Whether these are the first queries that see the keys.
      const bool is_first =
          head % spec_.group() == 0 && first == (spec_.causal ? block.first_key : 0);
      for_rows(block.keys, [&](std::int64_t j, std::int64_t rows) {
        for (const std::size_t part : {1U, 2U})
          copies_.prefetch_rows(t.input_gradients, part, sample, head / spec_.group(),
                                block.first_key + j, rows);
        // Earlier queries do not see the keys.
        const std::int64_t from = std::max<std::int64_t>(j - block.earlier, 0);
        const auto add = is_first ? multiply<false> : multiply<true>;
        add(left_transposed(w.weights, from, j), rows, right(w.output_gradients, from),
            count - from, w.value_gradients.from(block.first_key + j), row_);
        add(left_transposed(w.score_gradients, from, j), rows, right(w.queries, from), count - from,
            w.key_gradients.from(block.first_key + j), row_);
      });
    });
    copies_.store_gradient(t, 0, sample, head, first, count, spec_.scale, w.outputs);
  }

  AttentionSpec spec_;
  HeadCopies<T> copies_;
  std::int64_t row_;      // elements of a padded row of a head
  std::int64_t key_row_;  // elements of a padded row of keys
  int workers_;
};

}  // namespace
}  // namespace lockstep::inline v0::model::cpu

namespace lockstep::inline v0::model {

std::unique_ptr<Operation> Attention::compile_cpu(const CompileContext& context,
                                                  cpu::Context& cpu) const {
  if (cpu.type == dnnl::memory::data_type::bf16)
    return std::make_unique<cpu::AttentionOperation<Eigen::bfloat16>>(spec(context));
  return std::make_unique<cpu::AttentionOperation<float>>(spec(context));
}

}  // namespace lockstep::inline v0::model
