// Replaces the project's header of this name in sources that the host's compiler compiles: kernels
// run on simulated GPUs.
#pragma once

#include <cuda_runtime.h>

#include "lockstep/device/cuda/cuda.h"
#include "tests/support/pretend_cuda/grid.h"

namespace lockstep::inline v0::device::cuda {

template <typename... Parameters>
void launch(void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream,
            std::type_identity_t<Parameters>... arguments) {
  pretend::load(reinterpret_cast<const void*>(kernel));
  check(pretend::launch(blocks, threads, stream, [=] { kernel(arguments...); }),
        "the launch of a kernel");
}

}  // namespace lockstep::inline v0::device::cuda
