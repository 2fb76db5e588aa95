#include "allreduce/cuda/reduce_kernel.h"

#include <algorithm>
#include <cstdint>

#include "allreduce/element.h"
#include "device/cuda/launch.h"

namespace lockstep::allreduce::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 1024;  // some for each processor of any GPU; each then walks on
constexpr std::size_t kPackBytes = 16;     // what one thread loads at once

template <typename T>
struct alignas(kPackBytes) Pack {
  static constexpr int kElements = kPackBytes / sizeof(T);
  T elements[kElements];
};

template <typename T>
__device__ const T* at(const std::byte* buffer, std::size_t element) {
  return reinterpret_cast<const T*>(buffer) + element;
}

template <typename T>
__device__ T* at(std::byte* buffer, std::size_t element) {
  return reinterpret_cast<T*>(buffer) + element;
}

// Members and results may be the same buffers: an element is read from all before it is written to any.
template <typename Op, typename T>
__global__ void reduce_packs(ReduceBuffers buffers, std::size_t begin, std::size_t packs) {
  using Total = typename Element<T>::Total;
  constexpr int kElements = Pack<T>::kElements;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t pack = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; pack < packs;
       pack += stride) {
    const std::size_t element = begin + pack * kElements;
    Total totals[kElements];
    for (int member = 0; member < buffers.member_count; ++member) {
      const Pack<T> values = *reinterpret_cast<const Pack<T>*>(at<T>(buffers.members[member], element));
#pragma unroll
      for (int i = 0; i < kElements; ++i) {
        const Total value = Element<T>::load(values.elements[i]);
        totals[i] = member == 0 ? value : Op::apply(totals[i], value);
      }
    }
    Pack<T> reduced;
#pragma unroll
    for (int i = 0; i < kElements; ++i) reduced.elements[i] = Element<T>::store(totals[i]);
    for (int result = 0; result < buffers.result_count; ++result)
      *reinterpret_cast<Pack<T>*>(at<T>(buffers.results[result], element)) = reduced;
  }
}

template <typename Op, typename T>
__global__ void reduce_elements(ReduceBuffers buffers, std::size_t begin, std::size_t end) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = begin + static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += stride) {
    const T reduced =
        reduce_element<Op, T>(buffers.member_count, [&](int member) { return *at<T>(buffers.members[member], i); });
    for (int result = 0; result < buffers.result_count; ++result) *at<T>(buffers.results[result], i) = reduced;
  }
}

unsigned blocks_for(std::size_t items) {
  return static_cast<unsigned>(std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks));
}

bool is_aligned(const std::byte* buffer, std::size_t offset) {
  return (reinterpret_cast<std::uintptr_t>(buffer) + offset) % kPackBytes == 0;
}

bool are_aligned(const ReduceBuffers& buffers, std::size_t offset) {
  return std::all_of(buffers.members, buffers.members + buffers.member_count,
                     [&](const std::byte* buffer) { return is_aligned(buffer, offset); }) &&
         std::all_of(buffers.results, buffers.results + buffers.result_count,
                     [&](const std::byte* buffer) { return is_aligned(buffer, offset); });
}

template <typename Op, typename T>
void reduce(const ReduceBuffers& buffers, Slice slice, cudaStream_t stream) {
  using device::cuda::launch;
  std::size_t begin = slice.begin;
  if (are_aligned(buffers, begin * sizeof(T))) {
    const std::size_t packs = (slice.end - begin) / Pack<T>::kElements;
    if (packs > 0) launch(reduce_packs<Op, T>, blocks_for(packs), kThreads, stream, buffers, begin, packs);
    begin += packs * Pack<T>::kElements;
  }
  if (begin < slice.end)
    launch(reduce_elements<Op, T>, blocks_for(slice.end - begin), kThreads, stream, buffers, begin, slice.end);
}

template <typename T>
void reduce(ReduceOp op, const ReduceBuffers& buffers, Slice slice, cudaStream_t stream) {
  switch (op) {
    case ReduceOp::sum:
      return reduce<Sum, T>(buffers, slice, stream);
    case ReduceOp::max:
      return reduce<Max, T>(buffers, slice, stream);
    case ReduceOp::min:
      return reduce<Min, T>(buffers, slice, stream);
  }
}

}  // namespace

void launch_reduction(const ReduceBuffers& buffers, Slice slice, ElementType type, ReduceOp op, cudaStream_t stream) {
  switch (type) {
    case ElementType::float32:
      return reduce<float>(op, buffers, slice, stream);
    case ElementType::float64:
      return reduce<double>(op, buffers, slice, stream);
    case ElementType::float16:
      return reduce<device::Float16>(op, buffers, slice, stream);
    case ElementType::bfloat16:
      return reduce<device::BFloat16>(op, buffers, slice, stream);
    case ElementType::int32:
      return reduce<std::int32_t>(op, buffers, slice, stream);
    case ElementType::int64:
      return reduce<std::int64_t>(op, buffers, slice, stream);
  }
}

}  // namespace lockstep::allreduce::gpu
