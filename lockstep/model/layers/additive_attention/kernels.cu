#include "lockstep/model/layers/additive_attention/kernels.h"

#include <algorithm>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

constexpr unsigned kAdditiveWarp = 32;
constexpr unsigned kAdditiveWarps = kThreads / kAdditiveWarp;
constexpr unsigned kWholeWarp = 0xffffffffU;
constexpr float kPaddingScore = -3.402823466e38f;  // a score

template <typename T>
struct AdditiveArrays {
  const T* queries;
  const T* keys;
  const T* values;
  const std::int32_t* segments;
  const float* scale;
  float* weights;
  T* output;
  const T* output_gradient;
  T* query_gradient;  // null: not needed; also below
  T* key_gradient;
  T* value_gradient;
  float* score_gradients;
  float* scale_partials;
};

__device__ inline float sum_over_warp(float value) {
  for (unsigned offset = kAdditiveWarp / 2; offset > 0; offset /= 2)
    value += __shfl_down_sync(kWholeWarp, value, offset);
  return value;
}

// The sum over a block, for all its threads.
__device__ inline float sum_over_block(float value) {
  __shared__ float total;
  value = block_sum(value);
  if (threadIdx.x == 0) total = value;
  __syncthreads();
  return total;
}
__device__ inline float largest_over_block(float value) {
  __shared__ float warp_values[kAdditiveWarps];
  for (unsigned offset = kAdditiveWarp / 2; offset > 0; offset /= 2)
    value = fmaxf(value, __shfl_down_sync(kWholeWarp, value, offset));
  if (threadIdx.x % kAdditiveWarp == 0) warp_values[threadIdx.x / kAdditiveWarp] = value;
  __syncthreads();
  value = warp_values[0];
  for (unsigned k = 1; k < kAdditiveWarps; ++k) value = fmaxf(value, warp_values[k]);
  return value;
}

// A block processes one query at a time, a warp one of its keys.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    weigh_values(AdditiveArrays<T> arrays, AdditiveAttentionSpec spec) {
  const std::int64_t lane = threadIdx.x % kAdditiveWarp;
  for (std::int64_t row = blockIdx.x; row < spec.batch * spec.queries; row += gridDim.x) {
    const std::int64_t first_key = row / spec.queries * spec.keys;
    const T* const query = arrays.queries + row * spec.units;
    const std::int32_t* const segments =
        arrays.segments == nullptr ? nullptr : arrays.segments + first_key;
    float* const weights = arrays.weights + row * spec.keys;
    for (std::int64_t s = threadIdx.x / kAdditiveWarp; s < spec.keys; s += kAdditiveWarps) {
      const bool is_padding = segments != nullptr && segments[s] == 0;
      const T* const key = arrays.keys + (first_key + s) * spec.units;
      float sum = 0;
      for (std::int64_t u = is_padding ? spec.units : lane; u < spec.units; u += kAdditiveWarp)
        sum += arrays.scale[u] * tanhf(widen(query[u]) + widen(key[u]));
      sum = sum_over_warp(sum);
      if (lane == 0) weights[s] = is_padding ? kPaddingScore : sum;
    }
    __syncthreads();
    float largest = kPaddingScore;
    for (std::int64_t s = threadIdx.x; s < spec.keys; s += kThreads)
      largest = fmaxf(largest, weights[s]);
    largest = largest_over_block(largest);
    float sum = 0;
    for (std::int64_t s = threadIdx.x; s < spec.keys; s += kThreads) {
      const bool is_padding = segments != nullptr && segments[s] == 0;
      weights[s] = is_padding ? 0 : expf(weights[s] - largest);
      sum += weights[s];
    }
    sum = sum_over_block(sum);  // the weights are visible to all threads
    const float inverse = sum > 0 ? 1 / sum : 0;
    for (std::int64_t d = threadIdx.x; d < spec.width; d += kThreads) {
      float mean = 0;
      for (std::int64_t s = 0; s < spec.keys; ++s)
        mean += weights[s] * widen(arrays.values[(first_key + s) * spec.width + d]);
      arrays.output[row * spec.width + d] = narrow<T>(mean * inverse);
    }
    __syncthreads();
    for (std::int64_t s = threadIdx.x; s < spec.keys; s += kThreads) weights[s] *= inverse;
  }
}

// A block processes one query at a time: the gradients of its scores, then of the query, and its
// contribution to the gradient of the scale.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    additive_query_gradients(AdditiveArrays<T> arrays, AdditiveAttentionSpec spec) {
  const std::int64_t lane = threadIdx.x % kAdditiveWarp;
  for (std::int64_t row = blockIdx.x; row < spec.batch * spec.queries; row += gridDim.x) {
    const std::int64_t first_key = row / spec.queries * spec.keys;
    const T* const query = arrays.queries + row * spec.units;
    const T* const gradient = arrays.output_gradient + row * spec.width;
    const float* const weights = arrays.weights + row * spec.keys;
    float* const scores = arrays.score_gradients + row * spec.keys;
    for (std::int64_t s = threadIdx.x / kAdditiveWarp; s < spec.keys; s += kAdditiveWarps) {
      const T* const value = arrays.values + (first_key + s) * spec.width;
      float sum = 0;
      for (std::int64_t d = lane; d < spec.width; d += kAdditiveWarp)
        sum += widen(gradient[d]) * widen(value[d]);
      sum = sum_over_warp(sum);
      if (lane == 0) scores[s] = sum;
    }
    __syncthreads();
    float product = 0;
    for (std::int64_t s = threadIdx.x; s < spec.keys; s += kThreads)
      product += weights[s] * scores[s];
    product = sum_over_block(product);
    for (std::int64_t s = threadIdx.x; s < spec.keys; s += kThreads)
      scores[s] = weights[s] * (scores[s] - product);
    __syncthreads();
    for (std::int64_t u = threadIdx.x; u < spec.units; u += kThreads) {
      const float own = widen(query[u]);
      float slopes = 0;
      float products = 0;
      for (std::int64_t s = 0; s < spec.keys; ++s) {
        const float value = tanhf(own + widen(arrays.keys[(first_key + s) * spec.units + u]));
        slopes += scores[s] * (1 - value * value);
        products += scores[s] * value;
      }
      if (arrays.query_gradient != nullptr)
        arrays.query_gradient[row * spec.units + u] = narrow<T>(slopes * arrays.scale[u]);
      arrays.scale_partials[row * spec.units + u] = products;
    }
    __syncthreads();
  }
}

// A block processes one key at a time, with all queries of its sample.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    additive_key_gradients(AdditiveArrays<T> arrays, AdditiveAttentionSpec spec) {
  for (std::int64_t row = blockIdx.x; row < spec.batch * spec.keys; row += gridDim.x) {
    const std::int64_t first_query = row / spec.keys * spec.queries;
    const std::int64_t first_score = first_query * spec.keys + row % spec.keys;
    if (arrays.key_gradient != nullptr)
      for (std::int64_t u = threadIdx.x; u < spec.units; u += kThreads) {
        const float own = widen(arrays.keys[row * spec.units + u]);
        float slopes = 0;
        for (std::int64_t t = 0; t < spec.queries; ++t) {
          const float value =
              tanhf(own + widen(arrays.queries[(first_query + t) * spec.units + u]));
          slopes += arrays.score_gradients[first_score + t * spec.keys] * (1 - value * value);
        }
        arrays.key_gradient[row * spec.units + u] = narrow<T>(slopes * arrays.scale[u]);
      }
    if (arrays.value_gradient != nullptr)
      for (std::int64_t d = threadIdx.x; d < spec.width; d += kThreads) {
        float sum = 0;
        for (std::int64_t t = 0; t < spec.queries; ++t)
          sum += arrays.weights[first_score + t * spec.keys] *
                 widen(arrays.output_gradient[(first_query + t) * spec.width + d]);
        arrays.value_gradient[row * spec.width + d] = narrow<T>(sum);
      }
  }
}

// The sums of all rows; a block has one column per lane.
__global__ void __launch_bounds__(kThreads)
    sum_scale_partials(const float* partials, std::int64_t rows, std::int64_t columns,
                       float* sums) {
  __shared__ double warp_values[kAdditiveWarps][kAdditiveWarp];
  const unsigned lane = threadIdx.x % kAdditiveWarp;
  const unsigned warp = threadIdx.x / kAdditiveWarp;
  const std::int64_t column = std::int64_t{blockIdx.x} * kAdditiveWarp + lane;
  double sum = 0;
  for (std::int64_t row = warp; row < rows; row += kAdditiveWarps)
    if (column < columns) sum += static_cast<double>(partials[row * columns + column]);
  warp_values[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (unsigned k = 1; k < kAdditiveWarps; ++k) sum += warp_values[k][lane];
  sums[column] = static_cast<float>(sum);
}

unsigned blocks_for_rows(std::int64_t rows) {
  constexpr std::int64_t kMaxBlocks = 1 << 16;
  return static_cast<unsigned>(std::clamp<std::int64_t>(rows, 1, kMaxBlocks));
}

template <typename T>
AdditiveArrays<T> additive_arrays_of(const AdditiveAttentionArrays& all) {
  return {.queries = data<T>(all.inputs[0]),
          .keys = data<T>(all.inputs[1]),
          .values = data<T>(all.inputs[2]),
          .segments = all.segments,
          .scale = all.scale,
          .weights = all.weights,
          .output = data<T>(all.output),
          .output_gradient = data<T>(all.output_gradient),
          .query_gradient = data<T>(all.gradients[0]),
          .key_gradient = data<T>(all.gradients[1]),
          .value_gradient = data<T>(all.gradients[2]),
          .score_gradients = all.score_gradients,
          .scale_partials = all.scale_partials};
}

}  // namespace

void attend_additively(const AdditiveAttentionArrays& arrays, const AdditiveAttentionSpec& spec,
                       cudaStream_t stream) {
  with_type(arrays.output.type(), [&]<typename T>(T) {
    launch(weigh_values<T>, blocks_for_rows(spec.batch * spec.queries), kThreads, stream,
           additive_arrays_of<T>(arrays), spec);
  });
}

void additive_attention_gradients(const AdditiveAttentionArrays& arrays,
                                  const AdditiveAttentionSpec& spec, cudaStream_t stream) {
  const std::int64_t queries = spec.batch * spec.queries;
  with_type(arrays.output_gradient.type(), [&]<typename T>(T) {
    const AdditiveArrays<T> all = additive_arrays_of<T>(arrays);
    launch(additive_query_gradients<T>, blocks_for_rows(queries), kThreads, stream, all, spec);
    if (all.key_gradient != nullptr || all.value_gradient != nullptr)
      launch(additive_key_gradients<T>, blocks_for_rows(spec.batch * spec.keys), kThreads, stream,
             all, spec);
  });
  if (arrays.scale_gradient != nullptr)
    launch(sum_scale_partials,
           static_cast<unsigned>((spec.units + kAdditiveWarp - 1) / kAdditiveWarp), kThreads,
           stream, arrays.scale_partials, queries, spec.units, arrays.scale_gradient);
}

}  // namespace lockstep::inline v0::model::cuda
