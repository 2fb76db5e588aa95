// Copies of one head of one sample, float32 and in padded rows, for attention on a CPU.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/model/cpu/float_rows.h"
#include "lockstep/model/layers/attention/attention.h"
#include "lockstep/model/layers/attention/row_product.h"

namespace lockstep::inline v0::model::cpu {

/// Reads and writes heads of arrays of type T. Their rows are padded with zeros to row() elements.
template <typename T>
class HeadCopies {
 public:
  explicit HeadCopies(const AttentionSpec& spec)
      : spec_(spec), parts_{spec.part(0), spec.part(1), spec.part(2)}, row_(lines_of(spec.width)) {
    if (spec.rotary == 0) return;
    const std::int64_t half = spec.width / 2;
    const std::int64_t positions = std::max(spec.queries, spec.keys);
    cosines_.resize(half, positions);
    sines_.resize(half, positions);
    for (std::int64_t p = 0; p < positions; ++p)
      for (std::int64_t i = 0; i < half; ++i) {
        const double angle = spec.angle(p, i);
        cosines_(i, p) = static_cast<float>(std::cos(angle));
        sines_(i, p) = static_cast<float>(std::sin(angle));
      }
  }

  std::int64_t row() const { return row_; }

  /// Sets the position of the first row of the arrays.
  void begin_at(std::int64_t position) { begin_ = position; }

  /// Copies `count` rows from position `first` on of queries, keys or values (part 0, 1 or 2),
  /// times `factor`. Queries and keys are rotated.
  void load(const Operands& t, std::size_t part, std::int64_t sample, std::int64_t head,
            std::int64_t first, std::int64_t count, float factor, PaddedRows<float> to) const {
    const T* from = row_of(t.inputs[parts_[part].input], part, sample, head, first);
    const std::int64_t stride = parts_[part].stride;
    for (std::int64_t i = 0; i < count; ++i, from += stride) {
      float* const row = to.from(i).data;
      if (i + kAhead < count) prefetch(from + kAhead * stride);
      read(from, factor, row);
      if (spec_.rotary > 0 && part < 2) rotate(row, first + i, 1);
    }
  }

  /// Writes the gradient of the rows that load() read, if it is needed. Changes `from`.
  void store_gradient(const Operands& t, std::size_t part, std::int64_t sample, std::int64_t head,
                      std::int64_t first, std::int64_t count, float factor,
                      PaddedRows<float> from) const {
    const TensorView& view = t.input_gradients[parts_[part].input];
    if (view.empty()) return;
    T* to = row_of(view, part, sample, head, first);
    for (std::int64_t i = 0; i < count; ++i, to += parts_[part].stride) {
      float* const row = from.from(i).data;
      if (spec_.rotary > 0 && part < 2) rotate(row, first + i, -1);
      write(row, factor, to);
    }
  }

  /// Prefetches `count` rows from position `first` on of queries, keys or values, or of their
  /// gradients in `views`, before load() or store_gradient() uses them.
  void prefetch_rows(const std::vector<TensorView>& views, std::size_t part, std::int64_t sample,
                     std::int64_t head, std::int64_t first, std::int64_t count) const {
    const TensorView& view = views[parts_[part].input];
    if (view.empty()) return;
    for (std::int64_t i = 0; i < count; ++i) prefetch(row_of(view, part, sample, head, first + i));
  }
  /// Prefetches rows of the output or its gradient.
  void prefetch_outputs(const TensorView& view, std::int64_t sample, std::int64_t head,
                        std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) prefetch(output_row(view, sample, head, first + i));
  }
  /// Copies a row of the output, or of its gradient.
  void load_output(const TensorView& view, std::int64_t sample, std::int64_t head,
                   std::int64_t position, float* to) const {
    read(output_row(view, sample, head, position), 1, to);
  }
  /// Writes `from` times `factor` to a row of the output. Changes `from`.
  void store_output(float* from, float factor, const TensorView& view, std::int64_t sample,
                    std::int64_t head, std::int64_t position) const {
    write(from, factor, output_row(view, sample, head, position));
  }

 private:
  static constexpr std::int64_t kAhead = 12;  // prefetch distance in rows

  T* row_of(const TensorView& view, std::size_t part, std::int64_t sample, std::int64_t head,
            std::int64_t position) const {
    const AttentionSpec::Part& place = parts_[part];
    const std::int64_t rows = part == 0 || spec_.cached ? spec_.queries : spec_.keys;
    return static_cast<T*>(view.data()) + (sample * rows + position - begin_) * place.stride +
           place.offset + head * spec_.width;
  }
  T* output_row(const TensorView& view, std::int64_t sample, std::int64_t head,
                std::int64_t position) const {
    return static_cast<T*>(view.data()) +
           ((sample * spec_.queries + position - begin_) * spec_.heads + head) * spec_.width;
  }

  // Rows of a head are too far apart for the hardware prefetcher.
  void prefetch(const T* row) const {
    for (std::int64_t e = 0; e < spec_.width; e += 64 / static_cast<std::int64_t>(sizeof(T)))
      __builtin_prefetch(row + e);
  }
  // Unrolls rows of common lengths.
  void read(const T* from, float factor, float* to) const {
    if (spec_.width == 2 * kLine) return copy_lines<2>(from, factor, to);
    if (spec_.width == 4 * kLine) return copy_lines<4>(from, factor, to);
    widen(from, spec_.width, to);
    for (std::int64_t e = spec_.width; e < row_; ++e) to[e] = 0;
    if (factor != 1) scale_row(to, row_, factor);
  }
  void write(float* from, float factor, T* to) const {
    if (spec_.width == 2 * kLine) return copy_lines<2>(from, factor, to);
    if (spec_.width == 4 * kLine) return copy_lines<4>(from, factor, to);
    if (factor != 1) scale_row(from, row_, factor);
    narrow(from, spec_.width, to);
  }
  template <std::int64_t kLines, typename From, typename To>
  static void copy_lines(const From* from, float factor, To* to) {
#pragma GCC unroll 16
    for (std::int64_t e = 0; e < kLines * kLine; e += kLanes)
      store_lanes(load_lanes(from + e) * factor, to + e);
  }
  // Rotates by the angles of `position`, times `direction` (1 or -1).
  void rotate(float* row, std::int64_t position, float direction) const {
    const std::int64_t half = spec_.width / 2;
    for (std::int64_t i = 0; i < half; ++i) {
      const float cosine = cosines_(i, position);
      const float sine = direction * sines_(i, position);
      const float first = row[i];
      const float second = row[i + half];
      row[i] = first * cosine - second * sine;
      row[i + half] = second * cosine + first * sine;
    }
  }

  AttentionSpec spec_;
  std::array<AttentionSpec::Part, 3> parts_;
  std::int64_t row_;
  std::int64_t begin_ = 0;
  Eigen::ArrayXXf cosines_;  // [E / 2, positions], by position
  Eigen::ArrayXXf sines_;
};

}  // namespace lockstep::inline v0::model::cpu
