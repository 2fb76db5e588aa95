// The CUDA stream inside a device::Stream of a GPU, for code that launches kernels or calls CUDA libraries.
#pragma once

#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/stream.h"

namespace lockstep::device::cuda {

/// The stream's CUDA handle, owned by `stream`. `stream` must be on a GPU.
cudaStream_t native(Stream& stream);

}  // namespace lockstep::device::cuda
