// Checks: shared memory between the ranks of a host, and free memory.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// A shared segment of one rank, which the other ranks of its host try to map.
struct OfferedSegment {
  std::int32_t process = 0;
  std::uint64_t pid_namespace = 0;
  std::array<std::uint64_t, 2> nonce = {};
  std::int32_t descriptor = -1;
  std::uint32_t serial = 0;
  std::string failure = {};  ///< why it could not be created; empty on success

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(OfferedSegment, process, pid_namespace, nonce, descriptor, serial,
                                              failure)
};

struct MemoryFacts {
  std::int64_t shm_bytes = -1;        ///< size of /dev/shm; -1: there is none
  std::int64_t shm_free_bytes = -1;   ///< free bytes in /dev/shm
  std::int64_t available_bytes = -1;  ///< memory available to this process
  std::string offer_failure = {};     ///< why this rank could not create a segment
  std::vector<int> unseen = {};       ///< ranks of this host whose segment this rank could not map
  std::string why = {};               ///< why the first of them could not be mapped

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(MemoryFacts, shm_bytes, shm_free_bytes, available_bytes, offer_failure,
                                              unseen, why)
};

/// Collective. Each rank creates a segment like the route shared-memory, and maps those of the other ranks of its host.
Reports<MemoryFacts> measure_memory(Ranks& ranks);

/// `shared-memory`: segments that cannot be created or mapped, a small /dev/shm. `wanted`: whether the user requested
/// this route, so that another one is no alternative. `nodes_with_gpus`: nodes on which NCCL needs space.
Outcome judge_shared_memory(const Reports<MemoryFacts>& reports, bool wanted,
                            const std::set<int>& nodes_with_gpus = {});
/// `memory`: too little free memory.
Outcome judge_memory(const Reports<MemoryFacts>& reports);

}  // namespace lockstep::apps::doctor
