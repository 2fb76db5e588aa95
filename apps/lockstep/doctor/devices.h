// Checks: the GPUs are visible, the same on all ranks, healthy, unused, and at least one per rank;
// shared memory between the ranks of a host, and free memory.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"
#include "lockstep/base/system/shared_segment.h"
#include "lockstep/device/gpu_health.h"

namespace lockstep::inline v0 {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SharedSegment::Owner, pid_namespace, nonce, process)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(SharedSegment::Handle, owner, descriptor, serial)
}  // namespace lockstep::inline v0

namespace lockstep::inline v0::device {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(GpuHealth, name, uuid, total_bytes, used_bytes,
                                                uncorrected_errors, needs_reset, lacks_spare_rows,
                                                is_slowed)
}  // namespace lockstep::inline v0::device

namespace lockstep::inline v0::apps::doctor {

struct DeviceFacts {
  std::vector<std::string> gpus = {};          ///< names of the GPUs that this program can use
  std::vector<std::string> uuids = {};         ///< UUIDs of the same GPUs
  std::string unavailable = {};                ///< why this program can use no GPU
  bool has_cuda = false;                       ///< whether this program was compiled for CUDA
  std::vector<device::GpuHealth> health = {};  ///< health of all GPUs of the host

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(DeviceFacts, gpus, uuids, unavailable, has_cuda,
                                              health)
};

DeviceFacts measure_devices();

/// The nodes that have GPUs.
std::set<int> nodes_with_gpus(const Reports<DeviceFacts>& reports);

/// `devices`: GPUs that are unusable, unhealthy, in use, or fewer than ranks.
Outcome judge_devices(const Reports<DeviceFacts>& reports);

/// A shared segment of one rank, which the other ranks of its host try to map.
struct OfferedSegment {
  SharedSegment::Handle handle = {};
  std::string failure = {};  ///< why it could not be created; empty on success

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(OfferedSegment, handle, failure)
};

struct MemoryFacts {
  std::int64_t shm_bytes = -1;        ///< size of /dev/shm; -1: there is none
  std::int64_t shm_free_bytes = -1;   ///< free bytes in /dev/shm
  std::int64_t available_bytes = -1;  ///< memory available to this process; -1: unknown
  std::string offer_failure = {};     ///< why this rank could not create a segment
  std::vector<int> unseen = {};       ///< ranks of this host whose segment this rank could not map
  std::string why = {};               ///< why the first of them could not be mapped

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(MemoryFacts, shm_bytes, shm_free_bytes,
                                              available_bytes, offer_failure, unseen, why)
};

/// Collective. Each rank creates a segment, as the route shared-memory does, and maps the segments
/// of the other ranks of its host.
Reports<MemoryFacts> measure_memory(Ranks& ranks);

/// `shared-memory`: segments that cannot be created or mapped, a small /dev/shm. `wanted`: whether
/// the user requested this route, which then cannot be replaced by another. `nodes_with_gpus`:
/// nodes on which NCCL needs space.
Outcome judge_shared_memory(const Reports<MemoryFacts>& reports, bool wanted,
                            const std::set<int>& nodes_with_gpus = {});
/// `memory`: too little free memory.
Outcome judge_memory(const Reports<MemoryFacts>& reports);

}  // namespace lockstep::inline v0::apps::doctor
