// Check: differences between the clocks of the hosts.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {

/// A host's clock against that of rank 0's host.
struct ClockReading {
  Place place = {};              ///< the host's first rank
  double seconds_ahead = 0;      ///< offset from rank 0's clock
  double seconds_uncertain = 0;  ///< maximum error of the offset: half of the shortest round trip
};

/// Collective. Rank 0 reads the clock of the first rank of every other host. Empty on the other
/// ranks.
std::vector<ClockReading> measure_clocks(Ranks& ranks);

/// `clocks`: clocks that differ too much.
Outcome judge_clocks(const std::vector<ClockReading>& readings);

// Checks: limits of a process on open files and locked memory.

struct LimitFacts {
  std::int64_t open_files = 0;       ///< soft limit; -1 for none
  std::int64_t open_files_hard = 0;  ///< hard limit; -1 for none
  std::int64_t locked_bytes = 0;     ///< soft limit; -1 for none
  bool has_rdma = false;             ///< whether there are RDMA cards, which require locked buffers

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(LimitFacts, open_files, open_files_hard, locked_bytes,
                                              has_rdma)
};

LimitFacts measure_limits();

/// Number of descriptors that a rank of a job of `ranks` ranks may need for data files, connections
/// and libraries.
std::int64_t open_files_needed(int ranks);

/// `open-files`: too few descriptors.
Outcome judge_open_files(const Reports<LimitFacts>& reports);
/// `locked-memory`: less than RDMA cards require.
Outcome judge_locked_memory(const Reports<LimitFacts>& reports);

// Check: all ranks run the same program with the same libraries.

/// The output of `lockstep version --json`, by name: "lockstep", "mpi built", "mpi loaded",
/// "processor", ….
using VersionFacts = std::map<std::string, std::string>;

VersionFacts version_facts(const nlohmann::ordered_json& versions);

/// Whether all ranks that answered have the same version of Lockstep. Messages of other versions
/// may be incompatible.
bool is_one_program(const Reports<VersionFacts>& reports);

/// `versions`: versions that differ between ranks, and libraries older than those this program was
/// compiled for.
Outcome judge_versions(const Reports<VersionFacts>& reports);

}  // namespace lockstep::inline v0::apps::doctor
