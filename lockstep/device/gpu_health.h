// Health of the GPUs of this host, from NVIDIA's management library (NVML): also of GPUs that CUDA
// cannot use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::inline v0::device {

struct GpuHealth {
  std::string name = {};
  std::string uuid = {};  ///< "GPU-xxxxxxxx-xxxx-…"
  std::int64_t total_bytes = 0;
  std::int64_t used_bytes = 0;  ///< by all processes
  /// Uncorrected memory errors (ECC) since the driver was loaded; -1: no ECC, or ECC is disabled.
  std::int64_t uncorrected_errors = -1;
  bool needs_reset = false;       ///< a row remapping is pending
  bool lacks_spare_rows = false;  ///< a row remapping has failed
  bool is_slowed = false;         ///< throttled by the hardware: temperature or power
};

/// All GPUs of this host in the order of NVML; empty if there is no NVML or no GPU. Loads the
/// library; may take seconds if a GPU is faulty.
std::vector<GpuHealth> list_gpu_health() noexcept;

}  // namespace lockstep::inline v0::device
