// The kernel that reduces buffers of one GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "allreduce/cuda/gpu_work.h"

namespace lockstep::allreduce::gpu {

struct ReduceBuffers {
  const std::byte* members[kMostMembers];
  std::byte* results[kMostMembers];  // may be members
  int member_count;
  int result_count;
};

/// gpu::reduce_slice on the current GPU, for two members or more and a slice that is not empty. Throws Error (device).
void launch_reduction(const ReduceBuffers& buffers, Slice slice, ElementType type, ReduceOp op, cudaStream_t stream);

}  // namespace lockstep::allreduce::gpu
