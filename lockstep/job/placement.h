// Where the replicas of a job compute, for people and for programs that read along.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/device/device.h"

namespace lockstep::job {

/// The GPU of a replica.
struct GpuPlace {
  std::string name;       ///< empty for a replica on the CPU
  std::string uuid;       ///< "GPU-xxxxxxxx-xxxx-…"
  int numa_node = -1;     ///< -1 where the system does not tell
  std::size_t bytes = 0;  ///< its memory, all in all
};

/// One replica: where it computes.
struct Placement {
  int replica = 0;                   ///< number among all replicas of the job
  int rank = 0;                      ///< that drives the replica
  int local_rank = 0;                ///< among the ranks of its node
  int node = 0;                      ///< number of its host
  std::string host;                  ///< its name
  std::string device;                ///< "cpu:0"
  int cores = 1;                     ///< threads of its kernels
  GpuPlace gpu = {};                 ///< where it has one
  int processors = 1;                ///< that its process may run on
  std::string processor_list = {};   ///< which those are: "0-3,8"
  std::vector<int> numa_nodes = {};  ///< of these; empty where the system does not tell
  std::string interface = {};        ///< by which its process reaches other nodes; empty where there are none

  bool is_on_gpu() const { return !gpu.uuid.empty(); }  ///< whether its device is a GPU
};

/// A replica of this process on `device`, without its numbers.
Placement describe_place(device::Device device);

/// A line for sending; read by parse_placements.
std::string to_text(const std::vector<Placement>& placements);
/// What to_text() of placements gave, from another rank.
std::vector<Placement> parse_placements(const std::string& text);

/// A line per replica: where it is, the threads of its kernels, and the network interface to other nodes ("-" where
/// there are none); where any is on a GPU, with its GPU's name, short UUID, NUMA node and memory.
std::string placement_table(const std::vector<Placement>& placements);

/// What is likely to make these replicas slow, a sentence each: processes with fewer cores than the `data_threads` that
/// read for each, cores that are fewer than the threads of the kernels on them, and processes whose cores are all on
/// another NUMA node than their GPU. One sentence for all ranks alike.
std::vector<std::string> placement_warnings(const std::vector<Placement>& placements, int data_threads);

}  // namespace lockstep::job
