// The CUDA stream of a device::Stream, for code that launches kernels or calls CUDA libraries.
#pragma once

#include "lockstep/device/cuda/cuda.h"
#include "lockstep/device/stream.h"

namespace lockstep::inline v0::device::cuda {

/// The CUDA handle of `stream`, which must be on a GPU and keeps ownership.
cudaStream_t native(Stream& stream);

}  // namespace lockstep::inline v0::device::cuda
