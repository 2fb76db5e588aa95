// What reductions ask of a GPU, in the order of a stream. Where CUDA is absent, no_gpu_work.cpp answers instead of
// gpu_work.cpp: no memory is on a GPU, and nothing else is ever asked.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <span>

#include "lockstep/allreduce/reduction.h"
#include "lockstep/device/stream.h"

namespace lockstep::allreduce::gpu {

/// Members whose buffers one reduction reads.
constexpr std::size_t kMostMembers = 32;

/// Whether `memory` is of a GPU, rather than of the host (page-locked or not).
bool holds(const void* memory);

// The rest returns when the work is on `stream`, which is one of a GPU. Throws Error (device).

/// Between any two memories that do not overlap; host memory must be page-locked for this not to wait.
void copy(const void* from, void* to, std::size_t bytes, device::Stream& stream);

void fill_with_zeros(void* memory, std::size_t bytes, device::Stream& stream);

/// reduce_slice() of reduce.h on the stream's GPU, which reaches all of `members` and `results`: the same bits.
void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results, Slice slice,
                  ElementType type, ReduceOp op, device::Stream& stream);

/// *largest, on the GPU, becomes the largest magnitude of `values`; infinity where one is not finite, 0 without values.
void find_largest(std::span<const float> values, float* largest, device::Stream& stream);

/// What 16-bit values are multiplied by: wire_scale(*largest, members), read on the GPU when the work runs; 1 for null.
struct WireScale {
  const float* largest = nullptr;
  int members = 1;
};

/// `to`, of as many elements of float16 or bfloat16, becomes `from` times the scale, rounded as device::narrow does.
void narrow(std::span<const float> from, void* to, ElementType type, const WireScale& scale, device::Stream& stream);
/// `to` becomes `from`, of as many such elements, divided by the scale.
void widen(const void* from, std::span<float> to, ElementType type, const WireScale& scale, device::Stream& stream);

// The kernel that reduces buffers of one GPU.

struct ReduceBuffers {
  const std::byte* members[kMostMembers];
  std::byte* results[kMostMembers];  // may be members
  int member_count;
  int result_count;
};

/// gpu::reduce_slice on the current GPU, for two members or more and a slice that is not empty. Throws Error (device).
void launch_reduction(const ReduceBuffers& buffers, Slice slice, ElementType type, ReduceOp op, cudaStream_t stream);

// The kernels that make 16-bit floats of gradients and gradients of them.

// gpu::find_largest, gpu::narrow and gpu::widen on the current GPU, for one value or more. Throws Error (device).

void launch_find_largest(const float* values, std::size_t count, float* largest, cudaStream_t stream);
void launch_narrow(const float* from, void* to, std::size_t count, ElementType type, const WireScale& scale,
                   cudaStream_t stream);
void launch_widen(const void* from, float* to, std::size_t count, ElementType type, const WireScale& scale,
                  cudaStream_t stream);

}  // namespace lockstep::allreduce::gpu
