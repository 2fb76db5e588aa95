// Whether the ranks of a host see each other's memory, and how much of it there is.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// Memory of one rank that others try to find.
struct OfferedSegment {
  std::int32_t process = 0;
  std::uint64_t pid_namespace = 0;
  std::array<std::uint64_t, 2> nonce = {};
  std::int32_t descriptor = -1;
  std::uint32_t serial = 0;
  std::string failure = {};  ///< why there is none; empty where there is

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(OfferedSegment, process, pid_namespace, nonce, descriptor, serial,
                                              failure)
};

struct MemoryFacts {
  std::int64_t shm_bytes = -1;        ///< size of /dev/shm; -1: there is none
  std::int64_t shm_free_bytes = -1;   ///< of it
  std::int64_t available_bytes = -1;  ///< of memory, for this process
  std::string offer_failure = {};     ///< why this rank could not make a segment
  std::vector<int> unseen = {};       ///< ranks of this host whose segment this rank could not map
  std::string why = {};               ///< of the first of them

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(MemoryFacts, shm_bytes, shm_free_bytes, available_bytes, offer_failure,
                                              unseen, why)
};

/// Collective. Each rank makes a segment as the route shared-memory does, and maps those of the others of its host.
Reports<MemoryFacts> measure_memory(Ranks& ranks);

/// `shared-memory`: segments that cannot be made or mapped, a small /dev/shm. `wanted`: whether the user asked for the
/// route by name, so that doing without it is no way out. `nodes_with_gpus`: where NCCL wants room.
Outcome judge_shared_memory(const Reports<MemoryFacts>& reports, bool wanted,
                            const std::set<int>& nodes_with_gpus = {});
/// `memory`: little that is free.
Outcome judge_memory(const Reports<MemoryFacts>& reports);

}  // namespace lockstep::apps::doctor
