#include "lockstep/model/layers/attention/kernels.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"
#include "lockstep/model/layers/attention/tiles.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;

// Queries, keys or values of all samples and heads.
template <typename T>
struct Part {
  T* data;
  std::int64_t positions;
  std::int64_t stride;
};

template <typename T>
__device__ Head<T> head_of(const Part<T>& part, std::int64_t sample, std::int64_t head,
                           const AttentionSpec& spec, const float2* rotations = nullptr) {
  return {part.data + sample * part.positions * part.stride + head * spec.width, part.positions,
          part.stride, static_cast<int>(spec.width), rotations};
}

template <typename T>
struct Arrays {
  Part<T> queries, keys, values, output, output_gradient;
  Part<T> query_gradient, key_gradient, value_gradient;  // data null: not needed
  const std::int32_t* segments;
  float* divisors;
  float* products;
  const float2* rotations;
};

// The tile, the head and the sample of this block, and this thread's place in the tile.
template <typename T>
struct Task {
  const Arrays<T>& arrays;
  const AttentionSpec& spec;
  std::int64_t first;  // first position of the tile
  std::int64_t head;
  std::int64_t sample;
  int x;
  int y;

  // Divides the `positions` of each of `heads` heads into tiles.
  __device__ Task(const Arrays<T>& all, const AttentionSpec& attention, std::int64_t positions,
                  std::int64_t heads)
      : arrays(all),
        spec(attention),
        x(static_cast<int>(threadIdx.x) % kSide),
        y(static_cast<int>(threadIdx.x) / kSide) {
    const std::int64_t tiles = (positions + kTile - 1) / kTile;
    const std::int64_t index = blockIdx.x;
    first = index % tiles * kTile;
    head = index / tiles % heads;
    sample = index / tiles / heads;
  }

  __device__ std::int64_t group() const { return spec.heads / spec.key_value_heads; }
  __device__ Head<T> queries(std::int64_t index) const {
    return head_of(arrays.queries, sample, index, spec, arrays.rotations);
  }
  __device__ Head<T> gradient(std::int64_t index) const {
    return head_of(arrays.output_gradient, sample, index, spec);
  }
  // Keys of a head of keys and values.
  __device__ Head<T> keys(std::int64_t index) const {
    return head_of(arrays.keys, sample, index, spec, arrays.rotations);
  }
  __device__ Head<T> values(std::int64_t index) const {
    return head_of(arrays.values, sample, index, spec);
  }
  // The index of the values per query of a head.
  __device__ std::int64_t rows(std::int64_t index) const {
    return (sample * spec.heads + index) * spec.queries;
  }
  __device__ bool sees(std::int64_t query, std::int64_t key) const {
    if (query >= spec.queries || key >= spec.keys || (spec.causal && key > query)) return false;
    if (arrays.segments == nullptr) return true;
    const std::int32_t* const segments = arrays.segments + sample * spec.queries;
    return segments[query] != 0 && segments[query] == segments[key];
  }
};

// A block processes a tile of queries.
template <typename T, int kSteps>
__global__ void __launch_bounds__(kTileThreads)
    attend_to_keys(Arrays<T> arrays, AttentionSpec spec) {
  __shared__ Tiles tiles;
  const Task<T> task(arrays, spec, spec.queries, spec.heads);
  const int x = task.x;
  const int y = task.y;
  const Head<T> queries = task.queries(task.head);
  const Head<T> keys = task.keys(task.head / task.group());
  const Head<T> values = task.values(task.head / task.group());
  constexpr float kHidden = -3.402823466e38f;  // a score
  float maxima[kPerThread];
  float divisors[kPerThread];
  Sums<kSteps> sums{};
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    maxima[i] = kHidden;
    divisors[i] = 0;
  }
  const std::int64_t end = spec.causal ? min(task.first + kTile, spec.keys) : spec.keys;
  for (std::int64_t key = 0; key < end; key += kTile) {
    Scores scores;
    multiply_rows<kSteps>(queries, task.first, keys, key, tiles, scores);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t query = task.first + y + kSide * i;
      bool seen[kPerThread];
      float maximum = maxima[i];
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        seen[j] = task.sees(query, key + x + kSide * j);
        scores[i][j] *= spec.scale;
        if (seen[j]) maximum = fmaxf(maximum, scores[i][j]);
      }
      maximum = reduce_row(maximum, [](float a, float b) { return fmaxf(a, b); });
      const float factor = expf(maxima[i] - maximum);
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        scores[i][j] = seen[j] ? expf(scores[i][j] - maximum) : 0;
        sum += scores[i][j];
      }
      divisors[i] = divisors[i] * factor + reduce_row(sum, [](float a, float b) { return a + b; });
      maxima[i] = maximum;
#pragma unroll
      for (int e = 0; e < 2 * kSteps; ++e) sums[i][e] *= factor;
    }
    write_weights(scores, tiles);
    add_rows<kSteps>(values, key, tiles, sums);
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const std::int64_t query = task.first + y + kSide * i;
    const float inverse = divisors[i] > 0 ? 1 / divisors[i] : 0;
#pragma unroll
    for (int e = 0; e < 2 * kSteps; ++e) sums[i][e] *= inverse;
    if (arrays.divisors != nullptr && x == 0 && query < spec.queries)
      arrays.divisors[task.rows(task.head) + query] =
          divisors[i] > 0 ? maxima[i] + logf(divisors[i]) : 0;
  }
  head_of(arrays.output, task.sample, task.head, spec).template store<kSteps>(task.first, sums, 1);
}

// The products of outputs and their gradients, one warp per query and head.
template <typename T>
__global__ void multiply_outputs(Arrays<T> arrays, AttentionSpec spec) {
  constexpr unsigned kWarp = 32;
  const auto warp = static_cast<std::int64_t>(first_index() / kWarp);
  const unsigned lane = threadIdx.x % kWarp;
  if (warp >= spec.batch * spec.heads * spec.queries) return;
  const std::int64_t query = warp % spec.queries;
  const std::int64_t head = warp / spec.queries % spec.heads;
  const std::int64_t sample = warp / spec.queries / spec.heads;
  const std::int64_t begin = ((sample * spec.queries + query) * spec.heads + head) * spec.width;
  float sum = 0;
  for (std::int64_t e = lane; e < spec.width; e += kWarp)
    sum += widen(arrays.output.data[begin + e]) * widen(arrays.output_gradient.data[begin + e]);
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2)
    sum += __shfl_down_sync(kAllLanes, sum, distance);
  if (lane == 0) arrays.products[warp] = sum;
}

// A block processes a tile of queries.
template <typename T, int kSteps>
__global__ void __launch_bounds__(kTileThreads)
    gradients_of_queries(Arrays<T> arrays, AttentionSpec spec) {
  __shared__ Tiles tiles;
  const Task<T> task(arrays, spec, spec.queries, spec.heads);
  const int x = task.x;
  const int y = task.y;
  const Head<T> queries = task.queries(task.head);
  const Head<T> keys = task.keys(task.head / task.group());
  const Head<T> values = task.values(task.head / task.group());
  const Head<T> gradient = task.gradient(task.head);
  const std::int64_t first_row = task.rows(task.head);
  Sums<kSteps> sums{};
  const std::int64_t end = spec.causal ? min(task.first + kTile, spec.keys) : spec.keys;
  for (std::int64_t key = 0; key < end; key += kTile) {
    Scores scores;
    Scores slopes;
    multiply_rows<kSteps>(queries, task.first, keys, key, tiles, scores);
    multiply_rows<kSteps>(gradient, task.first, values, key, tiles, slopes);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const std::int64_t query = task.first + y + kSide * i;
#pragma unroll
      for (int j = 0; j < kPerThread; ++j)
        scores[i][j] = task.sees(query, key + x + kSide * j)
                           ? expf(scores[i][j] * spec.scale - arrays.divisors[first_row + query]) *
                                 (slopes[i][j] - arrays.products[first_row + query])
                           : 0;
    }
    write_weights(scores, tiles);
    add_rows<kSteps>(keys, key, tiles, sums);
  }
  head_of(arrays.query_gradient, task.sample, task.head, spec, arrays.rotations)
      .template store<kSteps>(task.first, sums, spec.scale);
}

// A block processes a tile of keys, and sums over the queries of all heads that share them.
template <typename T, int kSteps>
__global__ void __launch_bounds__(kTileThreads)
    gradients_of_keys(Arrays<T> arrays, AttentionSpec spec) {
  __shared__ Tiles tiles;
  const Task<T> task(arrays, spec, spec.keys, spec.key_value_heads);
  const int x = task.x;
  const int y = task.y;
  const Head<T> keys = task.keys(task.head);
  const Head<T> values = task.values(task.head);
  Sums<kSteps> key_sums{};
  Sums<kSteps> value_sums{};
  for (std::int64_t head = task.head * task.group(); head < (task.head + 1) * task.group();
       ++head) {
    const Head<T> queries = task.queries(head);
    const Head<T> gradient = task.gradient(head);
    const std::int64_t first_row = task.rows(head);
    for (std::int64_t first = spec.causal ? task.first : 0; first < spec.queries; first += kTile) {
      Scores weights;
      Scores slopes;
      multiply_rows<kSteps>(keys, task.first, queries, first, tiles, weights);
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const std::int64_t query = first + x + kSide * j;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i)
          weights[i][j] =
              task.sees(query, task.first + y + kSide * i)
                  ? expf(weights[i][j] * spec.scale - arrays.divisors[first_row + query])
                  : 0;
      }
      write_weights(weights, tiles);
      add_rows<kSteps>(gradient, first, tiles, value_sums);
      multiply_rows<kSteps>(values, task.first, gradient, first, tiles, slopes);
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        const std::int64_t query = first + x + kSide * j;
        const float product = query < spec.queries ? arrays.products[first_row + query] : 0;
#pragma unroll
        for (int i = 0; i < kPerThread; ++i) weights[i][j] *= slopes[i][j] - product;
      }
      write_weights(weights, tiles);
      add_rows<kSteps>(queries, first, tiles, key_sums);
    }
  }
  if (arrays.key_gradient.data != nullptr)
    head_of(arrays.key_gradient, task.sample, task.head, spec, arrays.rotations)
        .template store<kSteps>(task.first, key_sums, spec.scale);
  if (arrays.value_gradient.data != nullptr)
    head_of(arrays.value_gradient, task.sample, task.head, spec)
        .template store<kSteps>(task.first, value_sums, 1);
}

__global__ void write_turns(AttentionSpec spec, float2* rotations, std::int64_t count) {
  const std::int64_t half = spec.width / 2;
  for (auto i = static_cast<std::int64_t>(first_index()); i < count;
       i += static_cast<std::int64_t>(index_stride()))
    rotations[i] = rotation_at(spec, i / half, i % half);
}

std::int64_t rotation_count(const AttentionSpec& spec) {
  return spec.rotary > 0 ? std::max(spec.queries, spec.keys) * (spec.width / 2) : 0;
}

template <typename T>
Part<T> part_of_input(const TensorView& view, const AttentionSpec& spec, std::size_t which) {
  if (view.empty()) return {};
  const AttentionSpec::Part part = spec.part(which);
  return {data<T>(view) + part.offset, which == 0 ? spec.queries : spec.keys, part.stride};
}

template <typename T>
Arrays<T> arrays_of(const AttentionArrays& all, const AttentionSpec& spec) {
  const std::int64_t row = spec.heads * spec.width;
  return {.queries = part_of_input<T>(all.inputs[0], spec, 0),
          .keys = part_of_input<T>(all.inputs[1], spec, 1),
          .values = part_of_input<T>(all.inputs[2], spec, 2),
          .output = {data<T>(all.output), spec.queries, row},
          .output_gradient = {data<T>(all.output_gradient), spec.queries, row},
          .query_gradient = part_of_input<T>(all.gradients[0], spec, 0),
          .key_gradient = part_of_input<T>(all.gradients[1], spec, 1),
          .value_gradient = part_of_input<T>(all.gradients[2], spec, 2),
          .segments = all.segments,
          .divisors = all.divisors,
          .products = all.products,
          .rotations = static_cast<const float2*>(all.rotations)};
}

unsigned blocks_of(const AttentionSpec& spec, std::int64_t positions, std::int64_t heads) {
  return static_cast<unsigned>(spec.batch * heads * ((positions + kTile - 1) / kTile));
}

// Calls function(T{}, std::integral_constant<int, kSteps>{}) for heads of spec.width elements.
template <typename Function>
void with_steps(const TensorView& view, const AttentionSpec& spec, Function&& function) {
  with_type(view.type(), [&]<typename T>(T zero) {
    if (spec.width <= kColumns)
      function(zero, std::integral_constant<int, 1>());
    else if (spec.width <= 2 * kColumns)
      function(zero, std::integral_constant<int, 2>());
    else if (spec.width <= 4 * kColumns)
      function(zero, std::integral_constant<int, 4>());
    else
      function(zero, std::integral_constant<int, 8>());
  });
}

}  // namespace

std::size_t rotation_bytes(const AttentionSpec& spec) {
  return static_cast<std::size_t>(rotation_count(spec)) * sizeof(float2);
}

void write_rotations(const AttentionSpec& spec, void* rotations, cudaStream_t stream) {
  const std::int64_t count = rotation_count(spec);
  launch(write_turns, blocks_for(static_cast<std::size_t>(count)), kThreads, stream, spec,
         static_cast<float2*>(rotations), count);
}

void attend(const AttentionArrays& arrays, const AttentionSpec& spec, cudaStream_t stream) {
  with_steps(arrays.output, spec,
             [&]<typename T, int kSteps>(T, std::integral_constant<int, kSteps>) {
               launch(attend_to_keys<T, kSteps>, blocks_of(spec, spec.queries, spec.heads),
                      kTileThreads, stream, arrays_of<T>(arrays, spec), spec);
             });
}

void attention_gradients(const AttentionArrays& arrays, const AttentionSpec& spec,
                         cudaStream_t stream) {
  constexpr std::int64_t kWarps = kThreads / 32;
  const std::int64_t rows = spec.batch * spec.heads * spec.queries;
  with_steps(
      arrays.output, spec, [&]<typename T, int kSteps>(T, std::integral_constant<int, kSteps>) {
        const Arrays<T> all = arrays_of<T>(arrays, spec);
        launch(multiply_outputs<T>, static_cast<unsigned>((rows + kWarps - 1) / kWarps), kThreads,
               stream, all, spec);
        if (all.query_gradient.data != nullptr)
          launch(gradients_of_queries<T, kSteps>, blocks_of(spec, spec.queries, spec.heads),
                 kTileThreads, stream, all, spec);
        if (all.key_gradient.data != nullptr || all.value_gradient.data != nullptr)
          launch(gradients_of_keys<T, kSteps>, blocks_of(spec, spec.keys, spec.key_value_heads),
                 kTileThreads, stream, all, spec);
      });
}

}  // namespace lockstep::inline v0::model::cuda
