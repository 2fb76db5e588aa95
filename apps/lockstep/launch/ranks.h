// Which ranks of a job run on which host, and what tells a rank who it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::inline v0::apps::launch {

/// Consecutive ranks on one host.
struct HostRanks {
  std::string host = {};  ///< as the user names it; empty: this one
  int first = 0;
  int count = 0;

  bool operator==(const HostRanks&) const = default;
};

/// "A:2,B:2" -> the ranks of each host, in this order; a host without a number has one. `ranks`:
/// how many in all, filling the hosts in order; 0: all that the list has room for. An empty list is
/// this host. Throws Error (input) for a malformed list, or one without room for `ranks`.
std::vector<HostRanks> place_ranks(std::string_view hosts, int ranks);

/// What all ranks of a job on one host have in common.
struct HostPart {
  HostRanks ranks;
  int size = 1;                               ///< ranks of the job
  std::string rendezvous = {};                ///< the host of rank 0
  std::uint16_t port = 0;                     ///< at which rank 0 listens
  std::string secret = {};                    ///< the job's
  std::string directory = {};                 ///< in which the command runs; empty: the current one
  std::vector<std::string> environment = {};  ///< further variables, "NAME=value"
  std::vector<std::string> command = {};

  bool operator==(const HostPart&) const = default;
};

/// As one line, for the process that starts these ranks on another host.
std::string to_line(const HostPart& part);
/// What to_line() returned. Throws Error (communication) for anything else.
HostPart parse_part(const std::string& line);

/// The environment of local rank `local`: this process's, without what identifies a task of another
/// job, and with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
/// LOCKSTEP_JOB_SECRET.
std::vector<std::string> environment_of(const HostPart& part, int local);

/// Variables that ranks on other hosts need too: LOCKSTEP_…, OMP_…, NCCL_…, PYTHON…, PATH and
/// LD_LIBRARY_PATH.
std::vector<std::string> environment_for_hosts();

}  // namespace lockstep::inline v0::apps::launch
