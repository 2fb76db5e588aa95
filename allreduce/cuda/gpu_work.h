// What reductions ask of a GPU, in the order of a stream. Where CUDA is absent, no_gpu_work.cpp answers instead of
// gpu_work.cpp: no memory is on a GPU, and nothing else is ever asked.
#pragma once

#include <cstddef>
#include <span>

#include "allreduce/reduce.h"
#include "device/stream.h"

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

}  // namespace lockstep::allreduce::gpu
