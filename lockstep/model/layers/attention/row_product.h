// Products of small matrices that are in the cache, with rows of whole cache lines. They avoid a
// library's copies of the operands and take about 2/3 of its time for heads of 32 and 64 elements.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lockstep/model/cpu/lanes.h"

namespace lockstep::inline v0::model::cpu {

/// Elements of a cache line; rows begin with one, and their lengths are multiples of it.
constexpr std::int64_t kLine = 16;

constexpr std::int64_t lines_of(std::int64_t elements) {
  return (elements + kLine - 1) / kLine * kLine;
}

static_assert(kLine % kLanes == 0);

/// Rows of a product per tile. AVX-512 has twice as many registers.
constexpr std::int64_t kTileRows = kLanes == kLine ? 8 : 4;

/// A line of a row. The results of loops over lines do not depend on the address of the row.
using Line = Eigen::Array<float, kLine, 1>;
inline Eigen::Map<Line, Eigen::Aligned64> line(float* at) {
  return Eigen::Map<Line, Eigen::Aligned64>(at);
}
inline float row_max(float* row, std::int64_t count) {
  Line largest = line(row);
  for (std::int64_t j = kLine; j < count; j += kLine) largest = largest.max(line(row + j));
  Eigen::Array<float, 8, 1> eight = largest.head<8>().max(largest.tail<8>());
  Eigen::Array<float, 4, 1> four = eight.head<4>().max(eight.tail<4>());
  return std::max(std::max(four[0], four[1]), std::max(four[2], four[3]));
}
inline float row_sum(float* row, std::int64_t count) {
  Line sum = line(row);
  for (std::int64_t j = kLine; j < count; j += kLine) sum += line(row + j);
  return sum.sum();
}
inline void scale_row(float* row, std::int64_t count, float factor) {
  for (std::int64_t j = 0; j < count; j += kLine) line(row + j) *= factor;
}

/// The left factor: element (i, k) is data[i * row + k * depth], so it may be transposed.
struct LeftFactor {
  const float* data;
  std::int64_t row;
  std::int64_t depth;
};
/// Rows of `stride` elements.
template <typename Element>
struct PaddedRows {
  Element* data;
  std::int64_t stride;
  PaddedRows from(std::int64_t row) const { return {data + row * stride, stride}; }
};

/// A part of an aligned row, kLanes elements.
inline Lanes& lanes(float* at) { return *reinterpret_cast<Lanes*>(at); }

/// columns = rows, transposed, for `count` rows of `width` elements; rows of `columns` are padded
/// with zeros to whole lines.
inline void transpose(PaddedRows<const float> rows, std::int64_t count, std::int64_t width,
                      PaddedRows<float> columns) {
  for (std::int64_t e = 0; e < width; e += kLanes)
    for (std::int64_t first = 0; first < lines_of(count); first += kLanes) {
      Lanes tile[kLanes];
      const float* const from = rows.data + first * rows.stride + e;
      if (first + kLanes <= count)
        for (std::int64_t i = 0; i < kLanes; ++i) tile[i] = load_lanes(from + i * rows.stride);
      else
        for (std::int64_t i = 0; i < kLanes; ++i)
          tile[i] = first + i < count ? load_lanes(from + i * rows.stride) : Lanes{};
      transpose_lanes(tile);
      float* const to = columns.data + e * columns.stride + first;
      if (e + kLanes <= width)
        for (std::int64_t i = 0; i < kLanes; ++i) lanes(to + i * columns.stride) = tile[i];
      else
        for (std::int64_t i = 0; e + i < width; ++i) lanes(to + i * columns.stride) = tile[i];
    }
}

/// kRows x kColumns registers of the product at (0, column).
template <std::int64_t kRows, std::int64_t kColumns, bool kAdd>
void multiply_tile(const LeftFactor& a, PaddedRows<const float> b, std::int64_t depth,
                   PaddedRows<float> c, std::int64_t column) {
  Lanes sums[kRows][kColumns] = {};
  for (std::int64_t k = 0; k < depth; ++k) {
    Lanes right[kColumns];
    for (std::int64_t j = 0; j < kColumns; ++j)
      right[j] = *reinterpret_cast<const Lanes*>(b.data + k * b.stride + column + j * kLanes);
    for (std::int64_t i = 0; i < kRows; ++i) {
      const float left = a.data[i * a.row + k * a.depth];
      for (std::int64_t j = 0; j < kColumns; ++j) sums[i][j] += left * right[j];
    }
  }
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t j = 0; j < kColumns; ++j) {
      Lanes& target = *reinterpret_cast<Lanes*>(c.data + i * c.stride + column + j * kLanes);
      if constexpr (kAdd)
        target += sums[i][j];
      else
        target = sums[i][j];
    }
}

template <std::int64_t kRows, bool kAdd>
void multiply_rows(const LeftFactor& a, PaddedRows<const float> b, std::int64_t depth,
                   PaddedRows<float> c, std::int64_t columns) {
  std::int64_t j = 0;
  for (; j + 2 * kLanes <= columns; j += 2 * kLanes)
    multiply_tile<kRows, 2, kAdd>(a, b, depth, c, j);
  if (j < columns) multiply_tile<kRows, 1, kAdd>(a, b, depth, c, j);
}

/// c = a b, or c += a b with kAdd: at most kTileRows rows of c, `columns` columns, a multiple of
/// kLine; a has `depth` columns.
template <bool kAdd>
void multiply(const LeftFactor& a, std::int64_t rows, PaddedRows<const float> b, std::int64_t depth,
              PaddedRows<float> c, std::int64_t columns) {
  if (rows == kTileRows) return multiply_rows<kTileRows, kAdd>(a, b, depth, c, columns);
  for (std::int64_t i = 0; i < rows; ++i)
    multiply_rows<1, kAdd>({a.data + i * a.row, a.row, a.depth}, b, depth, c.from(i), columns);
}

}  // namespace lockstep::inline v0::model::cpu
