#include "lockstep/allreduce/cuda/gpu_work.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "lockstep/allreduce/member/element.h"
#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/device/cuda/launch.h"

namespace lockstep::inline v0::allreduce::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMaxBlocks =
    1024;  // several per multiprocessor on any GPU; blocks loop over the rest
constexpr std::size_t kPackBytes = 16;  // bytes per load of one thread

template <typename T>
struct alignas(kPackBytes) Pack {
  static constexpr int kElements = kPackBytes / sizeof(T);
  T elements[kElements];
};

template <typename T>
__device__ Pack<T> load(const T* from) {
  return *reinterpret_cast<const Pack<T>*>(from);
}

// As 16 bytes at once: nvcc splits a plain assignment where it cannot follow the pointer.
template <typename T>
__device__ void store(T* to, const Pack<T>& pack) {
  uint4 bits;
  std::memcpy(&bits, &pack, sizeof(bits));
  __stwb(reinterpret_cast<uint4*>(to), bits);
}

template <typename T>
__device__ const T* at(const std::byte* buffer, std::size_t element) {
  return reinterpret_cast<const T*>(buffer) + element;
}

template <typename T>
__device__ T* at(std::byte* buffer, std::size_t element) {
  return reinterpret_cast<T*>(buffer) + element;
}

// Members and results may be the same buffers: each element is read from all members before it is
// written.
template <typename Op, typename T>
__global__ void reduce_packs(ReduceBuffers buffers, std::size_t begin, std::size_t packs) {
  using Total = typename Element<T>::Total;
  constexpr int kElements = Pack<T>::kElements;
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t pack = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       pack < packs; pack += stride) {
    const std::size_t element = begin + pack * kElements;
    Total totals[kElements];
    for (int member = 0; member < buffers.member_count; ++member) {
      const Pack<T> values = load(at<T>(buffers.members[member], element));
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
      store(at<T>(buffers.results[result], element), reduced);
  }
}

template <typename Op, typename T>
__global__ void reduce_elements(ReduceBuffers buffers, std::size_t begin, std::size_t end) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = begin + static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       i < end; i += stride) {
    const T reduced = reduce_element<Op, T>(
        buffers.member_count, [&](int member) { return *at<T>(buffers.members[member], i); });
    for (int result = 0; result < buffers.result_count; ++result)
      *at<T>(buffers.results[result], i) = reduced;
  }
}

unsigned blocks_for(std::size_t items) {
  return static_cast<unsigned>(
      std::clamp<std::size_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

bool is_aligned(const void* buffer, std::size_t offset = 0) {
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
    if (packs > 0)
      launch(reduce_packs<Op, T>, blocks_for(packs), kThreads, stream, buffers, begin, packs);
    begin += packs * Pack<T>::kElements;
  }
  if (begin < slice.end)
    launch(reduce_elements<Op, T>, blocks_for(slice.end - begin), kThreads, stream, buffers, begin,
           slice.end);
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
    case ReduceOp::product:
      return reduce<Product, T>(buffers, slice, stream);
  }
}

}  // namespace

void launch_reduction(const ReduceBuffers& buffers, Slice slice, ElementType type, ReduceOp op,
                      cudaStream_t stream) {
  switch (type) {
    case ElementType::float32:
      return reduce<float>(op, buffers, slice, stream);
    case ElementType::float64:
      return reduce<double>(op, buffers, slice, stream);
    case ElementType::float16:
      return reduce<Float16>(op, buffers, slice, stream);
    case ElementType::bfloat16:
      return reduce<BFloat16>(op, buffers, slice, stream);
    case ElementType::uint8:
      return reduce<std::uint8_t>(op, buffers, slice, stream);
    case ElementType::int32:
      return reduce<std::int32_t>(op, buffers, slice, stream);
    case ElementType::int64:
      return reduce<std::int64_t>(op, buffers, slice, stream);
  }
}

namespace {

constexpr int kWarp = 32;

__device__ std::size_t first_of_thread() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ std::size_t stride_of_grid() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

// The bits of magnitudes compare like the magnitudes, so an integer maximum finds the largest, in
// any order.
__global__ void find_largest_bits(const float* values, std::size_t count, std::uint32_t* largest) {
  std::uint32_t mine = 0;
  for (std::size_t i = first_of_thread(); i < count; i += stride_of_grid()) {
    const std::uint32_t bits = magnitude_bits(values[i]);
    mine = bits > mine ? bits : mine;
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffU, mine, distance);
    mine = other > mine ? other : mine;
  }
  if (threadIdx.x % kWarp == 0) atomicMax(largest, mine);
}

__device__ float factor_of(const WireScale& scale) {
  return scale.largest == nullptr ? 1.0F : wire_scale(*scale.largest, scale.members);
}

// Packs of 16-bit floats are converted from and to two packs of float.
template <typename Half>
__global__ void narrow_packs(const float* from, Half* to, std::size_t packs, WireScale scale) {
  constexpr int kHalf = Pack<float>::kElements;
  const float factor = factor_of(scale);
  for (std::size_t pack = first_of_thread(); pack < packs; pack += stride_of_grid()) {
    const float* begin = from + pack * Pack<Half>::kElements;
    const Pack<float> wide[2] = {load(begin), load(begin + kHalf)};
    Pack<Half> narrow;
#pragma unroll
    for (int i = 0; i < Pack<Half>::kElements; ++i)
      narrow.elements[i] = Element<Half>::store(wide[i / kHalf].elements[i % kHalf] * factor);
    store(to + pack * Pack<Half>::kElements, narrow);
  }
}

template <typename Half>
__global__ void widen_packs(const Half* from, float* to, std::size_t packs, WireScale scale) {
  constexpr int kHalf = Pack<float>::kElements;
  const float factor = factor_of(scale);
  for (std::size_t pack = first_of_thread(); pack < packs; pack += stride_of_grid()) {
    const Pack<Half> narrow = load(from + pack * Pack<Half>::kElements);
    Pack<float> wide[2];
#pragma unroll
    for (int i = 0; i < Pack<Half>::kElements; ++i)
      wide[i / kHalf].elements[i % kHalf] = Element<Half>::load(narrow.elements[i]) / factor;
    float* begin = to + pack * Pack<Half>::kElements;
    store(begin, wide[0]);
    store(begin + kHalf, wide[1]);
  }
}

template <typename Half>
__global__ void narrow_values(const float* from, Half* to, std::size_t count, WireScale scale) {
  const float factor = factor_of(scale);
  for (std::size_t i = first_of_thread(); i < count; i += stride_of_grid())
    to[i] = Element<Half>::store(from[i] * factor);
}

template <typename Half>
__global__ void widen_values(const Half* from, float* to, std::size_t count, WireScale scale) {
  const float factor = factor_of(scale);
  for (std::size_t i = first_of_thread(); i < count; i += stride_of_grid())
    to[i] = Element<Half>::load(from[i]) / factor;
}

// Converts packs with `by_packs` as far as possible, the rest with `by_values`.
template <typename From, typename To, typename Kernel>
void convert(Kernel by_packs, Kernel by_values, const From* from, To* to, std::size_t count,
             const WireScale& scale, cudaStream_t stream) {
  using device::cuda::launch;
  constexpr std::size_t kElements = Pack<BFloat16>::kElements;
  const std::size_t packs = is_aligned(from) && is_aligned(to) ? count / kElements : 0;
  const std::size_t done = packs * kElements;
  if (packs > 0) launch(by_packs, blocks_for(packs), kThreads, stream, from, to, packs, scale);
  if (done < count)
    launch(by_values, blocks_for(count - done), kThreads, stream, from + done, to + done,
           count - done, scale);
}

}  // namespace

void launch_find_largest(const float* values, std::size_t count, float* largest,
                         cudaStream_t stream) {
  device::cuda::check(cudaMemsetAsync(largest, 0, sizeof(float), stream), "zeroed memory");
  device::cuda::launch(find_largest_bits, blocks_for(count), kThreads, stream, values, count,
                       reinterpret_cast<std::uint32_t*>(largest));
}

void launch_narrow(const float* from, void* to, std::size_t count, ElementType type,
                   const WireScale& scale, cudaStream_t stream) {
  if (type == ElementType::bfloat16)
    convert(narrow_packs<BFloat16>, narrow_values<BFloat16>, from, static_cast<BFloat16*>(to),
            count, scale, stream);
  else
    convert(narrow_packs<Float16>, narrow_values<Float16>, from, static_cast<Float16*>(to), count,
            scale, stream);
}

void launch_widen(const void* from, float* to, std::size_t count, ElementType type,
                  const WireScale& scale, cudaStream_t stream) {
  if (type == ElementType::bfloat16)
    convert(widen_packs<BFloat16>, widen_values<BFloat16>, static_cast<const BFloat16*>(from), to,
            count, scale, stream);
  else
    convert(widen_packs<Float16>, widen_values<Float16>, static_cast<const Float16*>(from), to,
            count, scale, stream);
}

}  // namespace lockstep::inline v0::allreduce::gpu
