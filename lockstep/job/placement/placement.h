// The placement of the replicas of a job on hosts, cores and GPUs.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::inline v0::job {

/// The GPU of a replica.
struct GpuPlace {
  std::string name;       ///< empty if the replica is on the CPU
  std::string uuid;       ///< "GPU-xxxxxxxx-xxxx-…"
  int numa_node = -1;     ///< -1 if unknown
  std::size_t bytes = 0;  ///< total memory
};

/// The placement of one replica.
struct Placement {
  int replica = 0;                   ///< number among all replicas of the job
  int rank = 0;                      ///< rank of its process
  int local_rank = 0;                ///< among the ranks of its node
  int node = 0;                      ///< number of its host
  std::string host;                  ///< its name
  std::string device;                ///< "cpu:0"
  int cores = 1;                     ///< threads of its kernels
  GpuPlace gpu = {};                 ///< if it has one
  int processors = 1;                ///< number of processors that its process may run on
  std::string processor_list = {};   ///< these processors: "0-3,8"
  std::vector<int> numa_nodes = {};  ///< their NUMA nodes; empty if unknown
  std::string interface = {};        ///< network interface to other nodes; empty if there are none

  bool is_on_gpu() const { return !gpu.uuid.empty(); }  ///< whether its device is a GPU
};

/// The placement of a replica of this process on `device`; replica, rank and node numbers are not
/// set.
Placement describe_place(device::Device device);

// The format in which ranks exchange placements.
void to_json(nlohmann::json& json, const Placement& place);
void from_json(const nlohmann::json& json, Placement& place);

/// A table with one line per replica: its placement, kernel threads, and network interface to other
/// nodes ("-" if there are none). If any replica is on a GPU, also the GPU's name, short UUID, NUMA
/// node and memory.
std::string placement_table(const std::vector<Placement>& placements);

/// Likely causes of slow replicas, one sentence each: processes with fewer cores than
/// `data_threads`, cores with more kernel threads than cores, and processes whose cores are all on
/// a different NUMA node than their GPU. One sentence per cause, for all affected ranks.
std::vector<std::string> placement_warnings(const std::vector<Placement>& placements,
                                            int data_threads);

}  // namespace lockstep::inline v0::job
