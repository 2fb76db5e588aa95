// How a kernel is put on a stream: the one place of the launch syntax, for sources that nvcc compiles.
#pragma once

#include <cuda_runtime.h>

#include "lockstep/device/cuda/cuda.h"

namespace lockstep::device::cuda {

/// Puts `kernel` on `stream`, `threads` threads in each of `blocks` blocks, with shared memory of fixed size alone.
/// Throws Error (device) where the launch is refused; what goes wrong later shows in a later call.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  check(cudaGetLastError(), "the launch of a kernel");
}

}  // namespace lockstep::device::cuda
