// Tiles of products of rows, for the kernels of attention. A block of threads computes a tile of
// kTile x kTile scores at a time, in steps of kColumns elements of the heads, held in shared
// memory. A thread has kPerThread x kPerThread of the scores, and of a result kPerThread rows with
// every 16th column.
#pragma once

#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/layers/attention/attention.h"

namespace lockstep::inline v0::model::cuda {

constexpr int kTile = 64;     // queries, or keys
constexpr int kColumns = 32;  // columns of a head per step
constexpr int kSide = 16;     // threads are 16 x 16
constexpr int kPerThread = kTile / kSide;
constexpr unsigned kTileThreads = kSide * kSide;
constexpr unsigned kAllLanes = 0xffffffffU;

// Cosine and sine of AttentionSpec::angle().
__device__ inline float2 rotation_at(const AttentionSpec& spec, std::int64_t position,
                                     std::int64_t pair) {
  const double angle = static_cast<double>(position) *
                       pow(static_cast<double>(spec.rotary),
                           -2 * static_cast<double>(pair) / static_cast<double>(spec.width));
  return make_float2(static_cast<float>(cos(angle)), static_cast<float>(sin(angle)));
}

struct Tiles {
  float left[kTile][kColumns + 1];  // one more to avoid bank conflicts
  float right[kTile][kColumns + 1];
  float weights[kTile][kTile + 1];
};
using Scores = float[kPerThread][kPerThread];
// kSteps x kColumns columns.
template <int kSteps>
using Sums = float[kPerThread][2 * kSteps];

// One head of one sample. Its columns are in two halves, each padded to kSteps * kColumns / 2
// columns, so that a thread has both elements that are rotated together.
template <typename T>
struct Head {
  T* data;
  std::int64_t positions;
  std::int64_t stride;
  int width;
  const float2* rotations;  // [positions, width / 2]; null: none

  __device__ int half() const { return (width + 1) / 2; }
  // The column in the head; -1: padding.
  template <int kSteps>
  __device__ int column(int padded) const {
    constexpr int kHalf = kSteps * kColumns / 2;
    if (padded < kHalf) return padded < half() ? padded : -1;
    const int in_second = half() + padded - kHalf;
    return in_second < width ? in_second : -1;
  }
  template <int kSteps>
  __device__ float load(std::int64_t position, int padded) const {
    const int at = column<kSteps>(padded);
    if (position >= positions || at < 0) return 0;
    const T* const row = data + position * stride;
    const float value = widen(row[at]);
    if (rotations == nullptr) return value;
    const bool first = at < half();
    const float2 turn = rotations[position * half() + (first ? at : at - half())];
    const float other = widen(row[first ? at + half() : at - half()]);
    return value * turn.x + (first ? -other : other) * turn.y;
  }
  // Rows `first` + y + 16 i, times `factor`, and rotated back.
  template <int kSteps>
  __device__ void store(std::int64_t first, const Sums<kSteps>& sums, float factor) const {
    const int x = static_cast<int>(threadIdx.x) % kSide;
    const int y = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t position = first + y + kSide * i;
      if (position >= positions) continue;
      T* const row = data + position * stride;
#pragma unroll
      for (int e = 0; e < kSteps; ++e) {
        const int at = column<kSteps>(x + kSide * e);
        if (at < 0) continue;
        float one = sums[i][e] * factor;
        float two = sums[i][e + kSteps] * factor;
        if (rotations != nullptr) {
          const float2 turn = rotations[position * half() + at];
          const float turned = one * turn.x + two * turn.y;
          two = two * turn.x - one * turn.y;
          one = turned;
        }
        row[at] = narrow<T>(one);
        if (at + half() < width) row[at + half()] = narrow<T>(two);
      }
    }
  }
};

template <int kSteps, typename T>
__device__ void load_tile(const Head<T>& rows, std::int64_t first, int step,
                          float (&tile)[kTile][kColumns + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kColumns; i += kTileThreads)
    tile[i / kColumns][i % kColumns] =
        rows.template load<kSteps>(first + i / kColumns, step * kColumns + i % kColumns);
}

// The products of rows of two heads, over their columns.
template <int kSteps, typename T>
__device__ void multiply_rows(const Head<T>& left, std::int64_t first_left, const Head<T>& right,
                              std::int64_t first_right, Tiles& tiles, Scores& scores) {
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) scores[i][j] = 0;
  for (int step = 0; step < kSteps; ++step) {
    __syncthreads();  // the tiles may still be read
    load_tile<kSteps>(left, first_left, step, tiles.left);
    load_tile<kSteps>(right, first_right, step, tiles.right);
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kColumns; ++k) {
      float a[kPerThread];
      float b[kPerThread];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) a[i] = tiles.left[y + kSide * i][k];
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) b[j] = tiles.right[x + kSide * j][k];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i)
#pragma unroll
        for (int j = 0; j < kPerThread; ++j) scores[i][j] += a[i] * b[j];
    }
  }
}

__device__ inline void write_weights(const Scores& weights, Tiles& tiles) {
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i)
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      tiles.weights[y + kSide * i][x + kSide * j] = weights[i][j];
}

// Adds the rows of a head, weighted by tiles.weights, which this thread has just written.
template <int kSteps, typename T>
__device__ void add_rows(const Head<T>& rows, std::int64_t first, Tiles& tiles,
                         Sums<kSteps>& sums) {
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    __syncthreads();
    load_tile<kSteps>(rows, first, step, tiles.right);
    __syncthreads();
#pragma unroll 8
    for (int k = 0; k < kTile; ++k) {
      const float one = tiles.right[k][x];
      const float two = tiles.right[k][x + kSide];
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const float weight = tiles.weights[y + kSide * i][k];
        sums[i][2 * step] += weight * one;
        sums[i][2 * step + 1] += weight * two;
      }
    }
  }
}

// Reduces over the threads of a row.
template <typename Reduce>
__device__ float reduce_row(float value, Reduce reduce) {
  for (int distance = kSide / 2; distance > 0; distance /= 2)
    value = reduce(value, __shfl_xor_sync(kAllLanes, value, distance, kSide));
  return value;
}

}  // namespace lockstep::inline v0::model::cuda
