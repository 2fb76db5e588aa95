#include "allreduce/cuda/gpu_work.h"

#include <algorithm>

#include "allreduce/cuda/reduce_kernel.h"
#include "device/cuda/stream.h"
#include "device/error.h"

namespace lockstep::allreduce::gpu {

namespace cuda = device::cuda;

bool holds(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
}

void copy(const void* from, void* to, std::size_t bytes, device::Stream& stream) {
  if (bytes == 0) return;
  const cuda::DeviceScope scope(stream.device().index);
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda::native(stream)), "a copy");
}

void fill_with_zeros(void* memory, std::size_t bytes, device::Stream& stream) {
  if (bytes == 0) return;
  const cuda::DeviceScope scope(stream.device().index);
  cuda::check(cudaMemsetAsync(memory, 0, bytes, cuda::native(stream)), "zeroed memory");
}

void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results, Slice slice,
                  ElementType type, ReduceOp op, device::Stream& stream) {
  LOCKSTEP_CHECK_OP(members.size(), <=, kMostMembers);
  LOCKSTEP_CHECK_OP(results.size(), <=, kMostMembers);
  if (members.size() < 2 || slice.begin == slice.end) return;
  ReduceBuffers buffers{};
  std::ranges::copy(members, buffers.members);
  std::ranges::copy(results, buffers.results);
  buffers.member_count = static_cast<int>(members.size());
  buffers.result_count = static_cast<int>(results.size());
  const cuda::DeviceScope scope(stream.device().index);
  launch_reduction(buffers, slice, type, op, cuda::native(stream));
}

}  // namespace lockstep::allreduce::gpu
