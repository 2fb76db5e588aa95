// The GPUs of this node. Without CUDA, no_cuda.cpp replaces cuda/ and reports that no GPU is
// available.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::device {

/// A GPU that is visible to this process.
struct GpuInfo {
  int index = 0;                ///< INDEX in `gpu:INDEX`
  std::string name;             ///< product name
  std::string uuid;             ///< "GPU-xxxxxxxx-xxxx-…"
  std::size_t total_bytes = 0;  ///< total memory
  int compute_major = 0;        ///< compute capability: 9 in 9.0
  int compute_minor = 0;        ///< compute capability: 0 in 9.0
  int numa_node = -1;           ///< -1 if unknown
};

/// Whether this build has the CUDA layer and the driver reports at least one GPU.
bool gpu_is_available() noexcept;

/// Why no GPU is available, and what to do, as one sentence; empty if gpu_is_available().
std::string gpu_unavailable_reason();

/// All GPUs that the driver reports, in its order; empty if none is available. Allocates no memory
/// on them. Does not throw.
std::vector<GpuInfo> list_gpus();

/// Free memory of one GPU in bytes. Creates this process's context on that GPU, which takes several
/// hundred megabytes; therefore list_gpus() does not report it. Throws Error (device) if the GPU is
/// not available.
std::size_t gpu_free_bytes(int index);

/// The CUDA version that this program was compiled with: "13.0", or "absent".
std::string cuda_built_version();
/// The newest CUDA version that the loaded driver supports: "13.0", or "absent" without a driver.
std::string cuda_loaded_version();

/// Memory of one GPU, zeroed. Buffers may outlive the allocator. Throws Error (device) if the GPU
/// is not available or has too little memory, with the requested and the free bytes.
std::unique_ptr<Allocator> make_gpu_allocator(int index);

/// Page-locked host memory, zeroed, which all GPUs can access directly; its buffers are on cpu:0.
/// Throws Error (device) if no GPU is available.
std::unique_ptr<Allocator> make_pinned_allocator();

}  // namespace lockstep::inline v0::device
