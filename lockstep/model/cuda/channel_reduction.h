// Sums over the rows of [rows, channels] inside kernels: each block sums some rows of some
// channels, then one kernel adds the results of the blocks. The order depends only on the shape.
#pragma once

#include "lockstep/model/cuda/channels.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::model::cuda {

// A block of kThreads as columns x lanes: adjacent threads process adjacent channels; lanes process
// rows.
struct Tile {
  int columns;
  int lanes;
};

__host__ __device__ inline Tile tile_of(std::int64_t packs) {
  constexpr int kMaxColumns = 32;
  int columns = 1;
  while (columns < kMaxColumns && columns < packs) columns *= 2;
  return {columns, static_cast<int>(kThreads) / columns};
}

inline dim3 grid_of(const ChannelLayout& layout, int width) {
  const std::int64_t packs = layout.channels / width;
  const int columns = tile_of(packs).columns;
  return {static_cast<unsigned>((packs + columns - 1) / columns),
          static_cast<unsigned>(layout.row_blocks)};
}

// Two sums of one channel, computed together.
struct Pair {
  float first = 0;
  float second = 0;
};

// The channel of this thread's first element, and its rows.
template <int kWidth>
struct Walk {
  Tile tile;
  std::int64_t channel, first_row, row_stride;

  __device__ explicit Walk(std::int64_t channels)
      : tile(tile_of(channels / kWidth)),
        channel((static_cast<std::int64_t>(blockIdx.x) * tile.columns +
                 static_cast<int>(threadIdx.x) % tile.columns) *
                kWidth),
        first_row(static_cast<std::int64_t>(blockIdx.y) * tile.lanes +
                  static_cast<int>(threadIdx.x) / tile.columns),
        row_stride(static_cast<std::int64_t>(gridDim.y) * tile.lanes) {}
};

// Adds the sums of a column's lanes in lane order and writes the result to
// partials[block][channel].
template <int kWidth>
__device__ void add_lanes(const Pair (&mine)[kWidth], const Walk<kWidth>& walk,
                          std::int64_t channels, Pair* partials) {
  __shared__ Pair found[kThreads];
  const int columns = walk.tile.columns;
  const int column = static_cast<int>(threadIdx.x) % columns;
  for (int i = 0; i < kWidth; ++i) {
    __syncthreads();
    found[threadIdx.x] = mine[i];
    __syncthreads();
    if (static_cast<int>(threadIdx.x) >= columns || walk.channel >= channels) continue;
    Pair sum = found[column];
    for (int other = 1; other < walk.tile.lanes; ++other) {
      sum.first += found[other * columns + column].first;
      sum.second += found[other * columns + column].second;
    }
    partials[static_cast<std::int64_t>(blockIdx.y) * channels + walk.channel + i] = sum;
  }
}

// The second kernel: each block handles a warp's width of channels, each summed by kSumLanes
// threads.
constexpr int kSumColumns = 32;
constexpr int kSumLanes = 32;
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
__device__ inline WidePair sum_partials(const Pair* partials, int row_blocks,
                                        std::int64_t channels) {
  __shared__ WidePair found[kSumThreads];
  const std::int64_t channel = summed_channel();
  const int column = static_cast<int>(threadIdx.x) % kSumColumns;
  WidePair sum;
  if (channel < channels)
    for (int block = static_cast<int>(threadIdx.x) / kSumColumns; block < row_blocks;
         block += kSumLanes) {
      const Pair part = partials[static_cast<std::int64_t>(block) * channels + channel];
      sum.first += static_cast<double>(part.first);
      sum.second += static_cast<double>(part.second);
    }
  found[threadIdx.x] = sum;
  __syncthreads();
  if (!has_sum(channels)) return sum;
  for (int other = 1; other < kSumLanes; ++other) {
    sum.first += found[other * kSumColumns + column].first;
    sum.second += found[other * kSumColumns + column].second;
  }
  return sum;
}

}  // namespace lockstep::model::cuda
