// Check: the GPUs are visible, the same on all ranks, healthy, unused, and at least one per rank.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"
#include "lockstep/device/gpu_health.h"

namespace lockstep::device {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GpuHealth, name, uuid, total_bytes, used_bytes, uncorrected_errors,
                                                wants_reset, lacks_spare_rows, is_slowed)
}  // namespace lockstep::device

namespace lockstep::apps::doctor {

struct DeviceFacts {
  std::vector<std::string> gpus = {};          ///< names of the GPUs that this program can use
  std::vector<std::string> uuids = {};         ///< UUIDs of the same GPUs
  std::string unavailable = {};                ///< why this program can use no GPU
  bool has_cuda = false;                       ///< whether this program was compiled for CUDA
  std::vector<device::GpuHealth> health = {};  ///< of all GPUs of the host

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(DeviceFacts, gpus, uuids, unavailable, has_cuda, health)
};

DeviceFacts measure_devices();

/// The nodes that have GPUs.
std::set<int> nodes_with_gpus(const Reports<DeviceFacts>& reports);

/// `devices`.
Outcome judge_devices(const Reports<DeviceFacts>& reports);

}  // namespace lockstep::apps::doctor
