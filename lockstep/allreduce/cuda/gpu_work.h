// GPU operations of reductions, ordered by a stream. In builds without CUDA, no_gpu_work.cpp
// replaces gpu_work.cpp: no memory is on a GPU, and nothing else is ever called.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/allreduce/member/reduction.h"
#include "lockstep/device/stream.h"

struct CUstream_st;  // a cudaStream_t points to it; builds without CUDA do not have its header

namespace lockstep::inline v0::allreduce::gpu {

/// Maximum number of members in one reduction.
constexpr std::size_t kMaxMembers = 32;

/// Whether `memory` is GPU memory rather than host memory (page-locked or not).
bool holds(const void* memory);

// The functions below return when the work is enqueued on `stream`, a GPU stream. They throw Error
// (device).

/// Copies between host and GPU memory in any direction. The ranges do not overlap. Waits unless
/// host memory is page-locked.
void copy(const void* from, void* to, std::size_t bytes, device::Stream& stream);

void fill_with_zeros(void* memory, std::size_t bytes, device::Stream& stream);

/// allreduce::reduce_slice() on the stream's GPU, which can access all `members` and `results`.
/// Bitwise equal to it.
void reduce_slice(std::span<const std::byte* const> members, std::span<std::byte* const> results,
                  Slice slice, ElementType type, ReduceOp op, device::Stream& stream);

/// Sets *largest, on the GPU, to the largest magnitude of `values`; infinity if one is not finite,
/// 0 if there are none.
void find_largest(std::span<const float> values, float* largest, device::Stream& stream);

/// The scale of 16-bit values: wire_scale(*largest, members), read on the GPU when the work runs; 1
/// if `largest` is null.
struct WireScale {
  const float* largest = nullptr;
  int members = 1;
};

/// Sets `to`, which has elements of float16 or bfloat16, to `from` times the scale, rounded like
/// device::narrow.
void narrow(std::span<const float> from, void* to, ElementType type, const WireScale& scale,
            device::Stream& stream);
/// Sets `to` to `from`, which has elements of float16 or bfloat16, divided by the scale.
void widen(const void* from, std::span<float> to, ElementType type, const WireScale& scale,
           device::Stream& stream);

// The kernel that reduces buffers of one GPU.

struct ReduceBuffers {
  const std::byte* members[kMaxMembers];
  std::byte* results[kMaxMembers];  // may be equal to members
  int member_count;
  int result_count;
};

/// gpu::reduce_slice on the current GPU, for at least two members and a nonempty slice. Throws
/// Error (device).
void launch_reduction(const ReduceBuffers& buffers, Slice slice, ElementType type, ReduceOp op,
                      CUstream_st* stream);

// The kernels that convert gradients to and from 16-bit floats.

// gpu::find_largest, gpu::narrow and gpu::widen on the current GPU, for at least one value. Throws
// Error (device).

void launch_find_largest(const float* values, std::size_t count, float* largest,
                         CUstream_st* stream);
void launch_narrow(const float* from, void* to, std::size_t count, ElementType type,
                   const WireScale& scale, CUstream_st* stream);
void launch_widen(const void* from, float* to, std::size_t count, ElementType type,
                  const WireScale& scale, CUstream_st* stream);

}  // namespace lockstep::inline v0::allreduce::gpu
