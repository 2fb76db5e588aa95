// How GPUs of this host are, as NVIDIA's management library tells: also those that CUDA cannot use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::device {

struct GpuHealth {
  std::string name = {};
  std::string uuid = {};  ///< "GPU-xxxxxxxx-xxxx-…"
  std::int64_t total_bytes = 0;
  std::int64_t used_bytes = 0;  ///< by all processes
  std::int64_t uncorrected_errors =
      -1;                         ///< of its memory (ECC), since the driver was loaded; -1: it has no ECC, or it is off
  bool wants_reset = false;       ///< rows of memory wait to be replaced by spare ones
  bool lacks_spare_rows = false;  ///< replacing a row has failed
  bool is_slowed = false;         ///< by the hardware itself: too hot, or too little power
};

/// All GPUs of this host in the order of the management library; empty where the library, or a GPU, is absent. Loads
/// the library; may take seconds where a GPU is ill. Never throws.
std::vector<GpuHealth> list_gpu_health() noexcept;

}  // namespace lockstep::device
