// The GPUs of this node. Where CUDA is absent, no_cuda.cpp answers instead of cuda/: none available, and why.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/buffer.h"

namespace lockstep::device {

/// A GPU that this process sees.
struct GpuInfo {
  int index = 0;                ///< by which `gpu:INDEX` means it
  std::string name;             ///< as its maker calls it
  std::string uuid;             ///< "GPU-xxxxxxxx-xxxx-…"
  std::size_t total_bytes = 0;  ///< of its memory
  int compute_major = 0;        ///< compute capability: 9 of 9.0
  int compute_minor = 0;        ///< compute capability: 0 of 9.0
  int numa_node = -1;           ///< of the host's memory that is near; -1 where the system does not tell
};

/// Whether this build has the CUDA layer and a driver with at least one GPU answers. Never throws.
bool gpu_is_available() noexcept;

/// Why not, in a sentence that says what to do; empty where gpu_is_available().
std::string gpu_unavailable_reason();

/// All GPUs that the driver shows, in its order; empty where none is available. Takes no memory on any of them. Never
/// throws.
std::vector<GpuInfo> list_gpus();

/// Bytes of one GPU that are free now. Makes this process's context on that GPU (some hundred megabytes there), which
/// is why list_gpus() does not tell. Throws Error (device) where the GPU is not available.
std::size_t gpu_free_bytes(int index);

/// The CUDA version that this program was compiled with: "13.0", or "absent".
std::string cuda_built_version();
/// The newest CUDA version that the loaded driver serves: "13.0", or "absent" without a driver.
std::string cuda_loaded_version();

/// Memory of one GPU, zeroed. Buffers may outlive the allocator: each knows its device.
/// Throws Error (device) where the GPU is not available or has too little memory (needed and free, in bytes).
std::unique_ptr<Allocator> make_gpu_allocator(int index);

/// Page-locked host memory, zeroed, that every GPU reads and writes directly; its buffers are on cpu:0. Throws Error
/// (device) where no GPU is available.
std::unique_ptr<Allocator> make_pinned_allocator();

}  // namespace lockstep::device
