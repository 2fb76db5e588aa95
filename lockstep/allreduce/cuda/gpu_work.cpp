#include "lockstep/allreduce/cuda/gpu_work.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/device/cuda/stream.h"

namespace lockstep::inline v0::allreduce::gpu {

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

void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results,
                  Slice slice, ElementType type, ReduceOp op, device::Stream& stream) {
  LOCKSTEP_CHECK_OP(members.size(), <=, kMaxMembers);
  LOCKSTEP_CHECK_OP(results.size(), <=, kMaxMembers);
  if (members.size() < 2 || slice.begin == slice.end) return;
  ReduceBuffers buffers{};
  std::ranges::copy(members, buffers.members);
  std::ranges::copy(results, buffers.results);
  buffers.member_count = static_cast<int>(members.size());
  buffers.result_count = static_cast<int>(results.size());
  const cuda::DeviceScope scope(stream.device().index);
  launch_reduction(buffers, slice, type, op, cuda::native(stream));
}

void find_largest(std::span<const float> values, float* largest, device::Stream& stream) {
  if (values.empty()) return fill_with_zeros(largest, sizeof(float), stream);
  const cuda::DeviceScope scope(stream.device().index);
  launch_find_largest(values.data(), values.size(), largest, cuda::native(stream));
}

void narrow(std::span<const float> from, void* to, ElementType type, const WireScale& scale,
            device::Stream& stream) {
  LOCKSTEP_CHECK(type == ElementType::float16 || type == ElementType::bfloat16);
  if (from.empty()) return;
  const cuda::DeviceScope scope(stream.device().index);
  launch_narrow(from.data(), to, from.size(), type, scale, cuda::native(stream));
}

void widen(const void* from, std::span<float> to, ElementType type, const WireScale& scale,
           device::Stream& stream) {
  LOCKSTEP_CHECK(type == ElementType::float16 || type == ElementType::bfloat16);
  if (to.empty()) return;
  const cuda::DeviceScope scope(stream.device().index);
  launch_widen(from, to.data(), to.size(), type, scale, cuda::native(stream));
}

}  // namespace lockstep::inline v0::allreduce::gpu
