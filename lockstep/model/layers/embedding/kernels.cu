#include "lockstep/model/layers/embedding/kernels.h"

#include <bit>

#include "lockstep/device/cuda/launch.h"
#include "lockstep/model/cuda/elements.h"

namespace lockstep::inline v0::model::cuda {
namespace {

using device::cuda::launch;
using Key = unsigned long long;  // an index and, below it, its position in the batch

constexpr std::size_t kChunk = 1024;  // keys that a block sorts in shared memory
constexpr unsigned kSortThreads = kChunk / 2;
constexpr unsigned kColumns = 32;  // row elements that a block sums
constexpr unsigned kLanes = 8;     // rows that a block reads in parallel

// Rounded up to whole chunks and a power of two.
std::size_t key_count(std::size_t indices) {
  return std::bit_ceil(indices < kChunk ? kChunk : indices);
}

template <typename T, int kWidth>
__global__ void gather(const T* table, const std::int32_t* indices, std::size_t packs,
                       std::size_t count, T* output) {
  for (std::size_t i = first_index(); i < count; i += index_stride()) {
    const std::size_t from = static_cast<std::size_t>(indices[i / packs]) * packs + i % packs;
    *reinterpret_cast<Stored<T, kWidth>*>(output + i * kWidth) =
        load_stored<T, kWidth>(table + from * kWidth);
  }
}

__global__ void make_keys(const std::int32_t* indices, std::size_t count, Key* keys,
                          std::size_t keys_count) {
  for (std::size_t i = first_index(); i < keys_count; i += index_stride())
    keys[i] = i < count ? static_cast<Key>(indices[i]) << 32 | i : ~Key{0};
}

// Orders the pair `pair` of keys that are `distance` apart, in a bitonic sort (Batcher, 1968) that
// has sorted runs of run / 2 keys. `first` is the position of keys[0] among all keys.
__device__ inline void order_pair(Key* keys, std::size_t first, std::size_t pair, std::size_t run,
                                  std::size_t distance) {
  const std::size_t low = 2 * pair - (pair & (distance - 1));
  const Key a = keys[low];
  const Key b = keys[low + distance];
  const bool ascends = ((first + low) & run) == 0;
  if ((a > b) != ascends) return;
  keys[low] = b;
  keys[low + distance] = a;
}

__global__ void order_pairs(Key* keys, std::size_t count, std::size_t run, std::size_t distance) {
  for (std::size_t pair = first_index(); pair < count / 2; pair += index_stride())
    order_pair(keys, 0, pair, run, distance);
}

// The steps of runs `first_run` to `last_run` whose distances are within a chunk.
__global__ void sort_chunks(Key* keys, std::size_t first_run, std::size_t last_run) {
  __shared__ Key chunk[kChunk];
  const std::size_t first = blockIdx.x * kChunk;
  for (std::size_t i = threadIdx.x; i < kChunk; i += kSortThreads) chunk[i] = keys[first + i];
  for (std::size_t run = first_run; run <= last_run; run *= 2)
    for (std::size_t distance = run < kChunk ? run / 2 : kChunk / 2; distance > 0; distance /= 2) {
      __syncthreads();
      order_pair(chunk, first, threadIdx.x, run, distance);
    }
  __syncthreads();
  for (std::size_t i = threadIdx.x; i < kChunk; i += kSortThreads) keys[first + i] = chunk[i];
}

// The block at the first of equal indices sums their rows: each lane every kLanes-th row, then the
// lanes.
template <typename T>
__global__ void add_rows(const Key* keys, std::size_t count, const T* rows, std::size_t dimension,
                         bool add, float* sums) {
  __shared__ float lane_sums[kLanes][kColumns];
  const std::size_t begin = blockIdx.x;
  const Key index = keys[begin] >> 32;
  if (begin > 0 && keys[begin - 1] >> 32 == index) return;
  const unsigned lane = threadIdx.x / kColumns;
  const unsigned block_column = threadIdx.x % kColumns;
  const std::size_t column = static_cast<std::size_t>(blockIdx.y) * kColumns + block_column;
  float sum = 0;
  if (column < dimension)
    for (std::size_t i = begin + lane; i < count && keys[i] >> 32 == index; i += kLanes)
      sum += widen(rows[(keys[i] & 0xffffffffU) * dimension + column]);
  lane_sums[lane][block_column] = sum;
  __syncthreads();
  if (lane > 0 || column >= dimension) return;
  for (unsigned other = 1; other < kLanes; ++other) sum += lane_sums[other][block_column];
  float* const place = sums + index * dimension + column;
  *place = add ? *place + sum : sum;
}

template <typename T, int kWidth>
__global__ void add_table_packs(const T* input, const T* table, std::size_t table_packs,
                                std::size_t packs, T* output) {
  for (std::size_t i = first_index(); i < packs; i += index_stride()) {
    Values<T, kWidth> values = load<T, kWidth>(input + i * kWidth);
    const Values<T, kWidth> added = load<T, kWidth>(table + i % table_packs * kWidth);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) values.elements[k] += added.elements[k];
    store<T, kWidth>(output + i * kWidth, values);
  }
}

}  // namespace

void gather_rows(const TensorView& table, std::span<const std::int32_t> indices,
                 std::int64_t dimension, const TensorView& output, cudaStream_t stream) {
  with_width(table.type(), dimension,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const std::size_t count = output.size() / kWidth;
               launch(gather<T, kWidth>, blocks_for(count), kThreads, stream, data<T>(table),
                      indices.data(), static_cast<std::size_t>(dimension) / kWidth, count,
                      data<T>(output));
             });
}

std::size_t sum_rows_bytes(std::int64_t count) {
  return key_count(static_cast<std::size_t>(count)) * sizeof(Key);
}

void sum_rows(const TensorView& rows, std::span<const std::int32_t> indices, std::int64_t dimension,
              std::span<float> sums, bool add, std::byte* workspace, cudaStream_t stream) {
  if (!add)
    device::cuda::check(cudaMemsetAsync(sums.data(), 0, sums.size_bytes(), stream), "zeros");
  auto* const keys = reinterpret_cast<Key*>(workspace);
  const std::size_t count = key_count(indices.size());
  const auto chunks = static_cast<unsigned>(count / kChunk);
  launch(make_keys, blocks_for(count), kThreads, stream, indices.data(), indices.size(), keys,
         count);
  launch(sort_chunks, chunks, kSortThreads, stream, keys, std::size_t{2}, kChunk);
  for (std::size_t run = 2 * kChunk; run <= count; run *= 2) {
    for (std::size_t distance = run / 2; distance >= kChunk; distance /= 2)
      launch(order_pairs, blocks_for(count / 2), kThreads, stream, keys, count, run, distance);
    launch(sort_chunks, chunks, kSortThreads, stream, keys, run, run);
  }
  const dim3 blocks(static_cast<unsigned>(indices.size()),
                    (static_cast<unsigned>(dimension) + kColumns - 1) / kColumns);
  with_type(rows.type(), [&]<typename T>(T) {
    launch(add_rows<T>, blocks, kColumns * kLanes, stream, keys, indices.size(), data<T>(rows),
           static_cast<std::size_t>(dimension), add, sums.data());
  });
}

void add_table(const TensorView& input, const TensorView& table, const TensorView& output,
               cudaStream_t stream) {
  // The table may begin in the middle of another one.
  const bool is_aligned = reinterpret_cast<std::uintptr_t>(table.data()) % kPackBytes == 0;
  with_width(input.type(), is_aligned ? static_cast<std::int64_t>(table.size()) : 1,
             [&]<typename T, int kWidth>(T, std::integral_constant<int, kWidth>) {
               const std::size_t packs = input.size() / kWidth;
               launch(add_table_packs<T, kWidth>, blocks_for(packs), kThreads, stream,
                      data<T>(input), data<T>(table), table.size() / kWidth, packs,
                      data<T>(output));
             });
}

}  // namespace lockstep::inline v0::model::cuda
