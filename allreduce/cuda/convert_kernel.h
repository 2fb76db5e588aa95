// The kernels that make 16-bit floats of gradients and gradients of them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "allreduce/cuda/gpu_work.h"

namespace lockstep::allreduce::gpu {

// gpu::find_largest, gpu::narrow and gpu::widen on the current GPU, for one value or more. Throws Error (device).

void launch_find_largest(const float* values, std::size_t count, float* largest, cudaStream_t stream);
void launch_narrow(const float* from, void* to, std::size_t count, ElementType type, const WireScale& scale,
                   cudaStream_t stream);
void launch_widen(const void* from, float* to, std::size_t count, ElementType type, const WireScale& scale,
                  cudaStream_t stream);

}  // namespace lockstep::allreduce::gpu
