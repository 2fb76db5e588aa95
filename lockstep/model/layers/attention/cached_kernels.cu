// Attention of some rows of a sequence to all positions up to them, whose keys and values are
// cached between passes. A pass reads each of them once per query head: it is memory-bound.
#include <type_traits>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/layers/attention/kernels.h"
#include "lockstep/model/layers/attention/tiles.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

constexpr int kLanes = 32;
constexpr int kWarps = static_cast<int>(kThreads) / kLanes;
constexpr int kMaxWidth = 256;  // per head
constexpr int kPerLane = kMaxWidth / kLanes;

template <typename T>
struct CachedPart {
  const T* data;
  std::int64_t stride;  // row stride of a pass

  __device__ const T* head(std::int64_t row, std::int64_t head, const AttentionSpec& spec) const {
    return data + row * stride + head * spec.width;
  }
};

// Element `e` of a row of a head, rotated by the angle of its position.
template <typename T>
__device__ float rotated(const T* row, const AttentionSpec& spec, std::int64_t position,
                         std::int64_t e) {
  const float value = widen(row[e]);
  if (!(spec.rotary > 0)) return value;
  const std::int64_t half = spec.width / 2;
  const bool is_first = e < half;
  const float2 turn = rotation_at(spec, position, is_first ? e : e - half);
  const float other = widen(row[is_first ? e + half : e - half]);
  return value * turn.x + (is_first ? -other : other) * turn.y;
}

template <typename T>
__global__ void add_to_cache(CachedPart<T> keys, CachedPart<T> values, T* cached_keys,
                             T* cached_values, AttentionSpec spec, std::int64_t position) {
  const std::int64_t count = spec.batch * spec.queries * spec.key_value_heads * spec.width;
  for (auto i = static_cast<std::int64_t>(first_index()); i < count;
       i += static_cast<std::int64_t>(index_stride())) {
    const std::int64_t e = i % spec.width;
    const std::int64_t head = i / spec.width % spec.key_value_heads;
    const std::int64_t row = i / spec.width / spec.key_value_heads;  // among all samples
    const std::int64_t query_position = position + row % spec.queries;
    const std::int64_t to =
        ((row / spec.queries * spec.keys + query_position) * spec.key_value_heads + head) *
            spec.width +
        e;
    cached_keys[to] = narrow<T>(rotated(keys.head(row, head, spec), spec, query_position, e));
    cached_values[to] = values.head(row, head, spec)[e];
  }
}

// A block processes one query of a head. Its warps process interleaved keys, with one softmax each;
// these are merged at the end.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    attend_to_cached(CachedPart<T> queries, const T* cached_keys, const T* cached_values, T* output,
                     AttentionSpec spec, std::int64_t position) {
  __shared__ float query[kMaxWidth];
  __shared__ float sums[kWarps][kMaxWidth];
  __shared__ float maxima[kWarps];
  __shared__ float divisors[kWarps];
  const std::int64_t index = blockIdx.x;
  const std::int64_t head = index % spec.heads;
  const std::int64_t row = index / spec.heads;  // among all samples
  const std::int64_t query_position = position + row % spec.queries;
  const int width = static_cast<int>(spec.width);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % kLanes;
  const int warp = thread / kLanes;
  for (int e = thread; e < width; e += static_cast<int>(kThreads))
    query[e] = rotated(queries.head(row, head, spec), spec, query_position, e) * spec.scale;
  __syncthreads();

  const std::int64_t stride = spec.key_value_heads * spec.width;
  const std::int64_t first = row / spec.queries * spec.keys * stride +
                             head / (spec.heads / spec.key_value_heads) * spec.width;
  float maximum = -3.402823466e38f;
  float divisor = 0;
  float weighted[kPerLane] = {};
  for (std::int64_t key = warp; key <= query_position; key += kWarps) {
    const T* const at = cached_keys + first + key * stride;
    float score = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (lane + kLanes * i < width)
        score += query[lane + kLanes * i] * widen(at[lane + kLanes * i]);
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      score += __shfl_xor_sync(kAllLanes, score, distance, kLanes);
    const float next = fmaxf(maximum, score);
    const float factor = expf(maximum - next);
    const float weight = expf(score - next);
    maximum = next;
    divisor = divisor * factor + weight;
    const T* const value = cached_values + first + key * stride;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (lane + kLanes * i < width)
        weighted[i] = weighted[i] * factor + weight * widen(value[lane + kLanes * i]);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i)
    if (lane + kLanes * i < width) sums[warp][lane + kLanes * i] = weighted[i];
  if (lane == 0) {
    maxima[warp] = maximum;
    divisors[warp] = divisor;
  }
  __syncthreads();

  for (int w = 0; w < kWarps; ++w) maximum = fmaxf(maximum, maxima[w]);
  for (int e = thread; e < width; e += static_cast<int>(kThreads)) {
    float sum = 0;
    float whole = 0;
    for (int w = 0; w < kWarps; ++w) {
      const float factor = expf(maxima[w] - maximum);
      sum += factor * sums[w][e];
      whole += factor * divisors[w];
    }
    output[(row * spec.heads + head) * spec.width + e] = narrow<T>(sum / whole);
  }
}

std::size_t cached_elements(const AttentionSpec& spec) {
  return static_cast<std::size_t>(spec.batch * spec.keys * spec.key_value_heads * spec.width);
}

template <typename T>
CachedPart<T> cached_part(const AttentionArrays& arrays, const AttentionSpec& spec,
                          std::size_t which) {
  const AttentionSpec::Part part = spec.part(which);
  return {data<T>(arrays.inputs[which]) + part.offset, part.stride};
}

}  // namespace

std::size_t cache_bytes(const AttentionSpec& spec, Precision precision) {
  constexpr std::size_t kAlignment = 64;  // alignment of Operands::cache
  const std::size_t bytes = 2 * cached_elements(spec) * element_bytes(precision);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void attend_in_cache(const AttentionArrays& arrays, const AttentionSpec& spec, std::byte* cache,
                     std::int64_t position, cudaStream_t stream) {
  with_type(arrays.output.type(), [&]<typename T>(T) {
    T* const keys = reinterpret_cast<T*>(cache);
    T* const values = keys + cached_elements(spec);
    const std::int64_t rows = spec.batch * spec.queries;
    launch(add_to_cache<T>,
           blocks_for(static_cast<std::size_t>(rows * spec.key_value_heads * spec.width)), kThreads,
           stream, cached_part<T>(arrays, spec, 1), cached_part<T>(arrays, spec, 2), keys, values,
           spec, position);
    launch(attend_to_cached<T>, static_cast<unsigned>(rows * spec.heads), kThreads, stream,
           cached_part<T>(arrays, spec, 0), static_cast<const T*>(keys),
           static_cast<const T*>(values), data<T>(arrays.output), spec, position);
  });
}

}  // namespace lockstep::inline v0::model::cuda
