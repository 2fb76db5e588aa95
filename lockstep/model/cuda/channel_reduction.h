// Loops over the rows of [rows, channels] inside kernels, and sums over them: each block sums some
// rows of some channels, then one kernel adds the results of the blocks. The order depends only on
// the layout.
#pragma once

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {

static_assert(kThreads == kRowThreads);
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

inline dim3 grid_of(const ChannelLayout& layout) {
  return {static_cast<unsigned>(layout.column_blocks), static_cast<unsigned>(layout.row_blocks)};
}

// Two sums of one channel, computed together.
struct Pair {
  float first = 0;
  float second = 0;
};

// The channel of this thread's first element, and its rows.
template <int kWidth>
struct Walk {
  std::int64_t channel, first_row, row_stride;

  __device__ explicit Walk(const ChannelLayout& layout)
      : channel((static_cast<std::int64_t>(blockIdx.x) * layout.columns +
                 static_cast<int>(threadIdx.x) % layout.columns) *
                kWidth),
        first_row(static_cast<std::int64_t>(blockIdx.y) * layout.lanes() +
                  static_cast<int>(threadIdx.x) / layout.columns),
        row_stride(static_cast<std::int64_t>(gridDim.y) * layout.lanes()) {}
};

// Calls load(row) and then use(row, loaded) for the rows of this thread, kRows at a time: all loads
// of a round are issued before the first use waits for one.
template <int kRows, int kWidth, typename Load, typename Use>
__device__ void for_each_row(const Walk<kWidth>& walk, std::int64_t rows, Load load, Use use) {
  for (std::int64_t first = walk.first_row; first < rows; first += kRows * walk.row_stride) {
    decltype(load(first)) loaded[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const std::int64_t row = first + k * walk.row_stride;
      if (row < rows) loaded[k] = load(row);
    }
#pragma unroll
    for (int k = 0; k < kRows; ++k) {
      const std::int64_t row = first + k * walk.row_stride;
      if (row < rows) use(row, loaded[k]);
    }
  }
}

// Adds the sums of a column's lanes, first within each warp and then over the warps, and writes the
// result to partials[block][channel]. Must be called by all threads.
template <int kWidth>
__device__ void add_lanes(Pair (&mine)[kWidth], const ChannelLayout& layout, Pair* partials) {
  constexpr int kWarps = static_cast<int>(kThreads) / kWarp;
  __shared__ Pair found[kWarps][kWidth][kWarp + 1];  // one more: no bank conflicts
  const int thread = static_cast<int>(threadIdx.x);
  const int columns = layout.columns;
  for (int distance = kWarp / 2; distance >= columns; distance /= 2) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      mine[i].first += __shfl_xor_sync(kAllLanes, mine[i].first, distance);
      mine[i].second += __shfl_xor_sync(kAllLanes, mine[i].second, distance);
    }
  }
  if (thread % kWarp < columns) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) found[thread / kWarp][i][thread % kWarp] = mine[i];
  }
  __syncthreads();
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * columns * kWidth + thread;
  if (thread >= columns * kWidth || channel >= layout.channels) return;
  Pair sum = found[0][thread % kWidth][thread / kWidth];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
    sum.first += found[warp][thread % kWidth][thread / kWidth].first;
    sum.second += found[warp][thread % kWidth][thread / kWidth].second;
  }
  partials[static_cast<std::int64_t>(blockIdx.y) * layout.channels + channel] = sum;
}

// The second kernel: each block adds the results for a few channels, each with many threads.
constexpr int kSumColumns = 8;
constexpr int kSumLanes = 64;
constexpr unsigned kSumThreads = kSumColumns * kSumLanes;

inline unsigned sum_blocks(std::int64_t channels) {
  return static_cast<unsigned>((channels + kSumColumns - 1) / kSumColumns);
}

struct WidePair {
  double first = 0;
  double second = 0;
};

__device__ inline std::int64_t summed_channel() {
  return static_cast<std::int64_t>(blockIdx.x) * kSumColumns + threadIdx.x % kSumColumns;
}

// Whether this thread holds the sum of its channel after sum_partials.
__device__ inline bool has_sum(std::int64_t channels) {
  return threadIdx.x < kSumColumns && summed_channel() < channels;
}

// Must be called by all threads.
__device__ inline WidePair sum_partials(const Pair* partials, const ChannelLayout& layout) {
  constexpr int kWarps = static_cast<int>(kSumThreads) / kWarp;
  __shared__ WidePair found[kWarps][kSumColumns];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t channel = summed_channel();
  WidePair sum;
  if (channel < layout.channels) {
#pragma unroll 4
    for (int block = thread / kSumColumns; block < layout.row_blocks; block += kSumLanes) {
      const Pair part = partials[static_cast<std::int64_t>(block) * layout.channels + channel];
      sum.first += static_cast<double>(part.first);
      sum.second += static_cast<double>(part.second);
    }
  }
#pragma unroll
  for (int distance = kWarp / 2; distance >= kSumColumns; distance /= 2) {
    sum.first += __shfl_xor_sync(kAllLanes, sum.first, distance);
    sum.second += __shfl_xor_sync(kAllLanes, sum.second, distance);
  }
  if (thread % kWarp < kSumColumns) found[thread / kWarp][thread % kWarp] = sum;
  __syncthreads();
  if (!has_sum(layout.channels)) return sum;
  sum = found[0][thread];
  for (int warp = 1; warp < kWarps; ++warp) {
    sum.first += found[warp][thread].first;
    sum.second += found[warp][thread].second;
  }
  return sum;
}

}  // namespace lockstep::inline v0::model::cuda
