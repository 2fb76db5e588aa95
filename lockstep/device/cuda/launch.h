// Launching a kernel on a stream. For sources that nvcc compiles.
#pragma once

#include <cuda_runtime.h>

#include "lockstep/device/cuda/cuda.h"

namespace lockstep::inline v0::device::cuda {

/// Launches `kernel` on `stream` with `threads` threads in each of `blocks` blocks and no dynamic
/// shared memory. Throws Error (device) if the launch fails; errors during execution are reported
/// by a later call.
template <typename... Parameters>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  kernel<<<blocks, threads, 0, stream>>>(arguments...);
  check(cudaGetLastError(), "the launch of a kernel");
}

}  // namespace lockstep::inline v0::device::cuda
