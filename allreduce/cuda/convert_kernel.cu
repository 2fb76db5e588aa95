#include "allreduce/cuda/convert_kernel.h"

#include <algorithm>
#include <cstdint>

#include "allreduce/element.h"
#include "allreduce/wire_type.h"
#include "device/cuda/launch.h"

namespace lockstep::allreduce::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kMostBlocks = 1024;  // some for each processor of any GPU; each then walks on
constexpr int kWarp = 32;

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(std::clamp<std::size_t>((count + kThreads - 1) / kThreads, 1, kMostBlocks));
}

__device__ std::size_t first_of_thread() { return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ std::size_t stride_of_grid() { return static_cast<std::size_t>(gridDim.x) * blockDim.x; }

// Bits of magnitudes are ordered as magnitudes are, so an integer's maximum finds the largest, in any order.
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

}  // namespace

void launch_find_largest(const float* values, std::size_t count, float* largest, cudaStream_t stream) {
  device::cuda::check(cudaMemsetAsync(largest, 0, sizeof(float), stream), "zeroed memory");
  device::cuda::launch(find_largest_bits, blocks_for(count), kThreads, stream, values, count,
                       reinterpret_cast<std::uint32_t*>(largest));
}

void launch_narrow(const float* from, void* to, std::size_t count, ElementType type, const WireScale& scale,
                   cudaStream_t stream) {
  if (type == ElementType::bfloat16)
    device::cuda::launch(narrow_values<device::BFloat16>, blocks_for(count), kThreads, stream, from,
                         static_cast<device::BFloat16*>(to), count, scale);
  else
    device::cuda::launch(narrow_values<device::Float16>, blocks_for(count), kThreads, stream, from,
                         static_cast<device::Float16*>(to), count, scale);
}

void launch_widen(const void* from, float* to, std::size_t count, ElementType type, const WireScale& scale,
                  cudaStream_t stream) {
  if (type == ElementType::bfloat16)
    device::cuda::launch(widen_values<device::BFloat16>, blocks_for(count), kThreads, stream,
                         static_cast<const device::BFloat16*>(from), to, count, scale);
  else
    device::cuda::launch(widen_values<device::Float16>, blocks_for(count), kThreads, stream,
                         static_cast<const device::Float16*>(from), to, count, scale);
}

}  // namespace lockstep::allreduce::gpu
