// Checks: the processors that each rank may use, CPU quotas and clock governors; the speed of
// computing and copying.
#pragma once

#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::inline v0::apps::doctor {

struct CoreFacts {
  std::vector<int> processors = {};  ///< affinity of this rank, ascending
  int online = 0;             ///< number of processors of the host, or of its container's cpuset
  int threads = 0;            ///< OMP_NUM_THREADS; 0: not set
  double quota = 0;           ///< CPU quota of the control group, in processors; 0: no limit
  std::string governor = {};  ///< CPU frequency governor; empty if unknown
  std::string driver = {};    ///< CPU frequency driver

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(CoreFacts, processors, online, threads, quota,
                                              governor, driver)
};

/// Must be called by a thread with the binding of its rank.
CoreFacts measure_cores();

/// `cores`: ranks that share processors, fewer processors than threads, quotas, low clock
/// frequencies.
Outcome judge_cores(const Reports<CoreFacts>& reports);

// Computing and copying speed of each rank while all ranks work.

struct SpeedFacts {
  int cores = 1;                ///< number of cores of this rank
  double gigaflops = 0;         ///< GFLOP/s of a product of 512 x 512 matrices
  double copied_gigabytes = 0;  ///< GB/s of copying memory, 10^9 bytes
  /// Share of its cores' time that this rank got; 1: no other program used them.
  double share_of_cores = 1;

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(SpeedFacts, cores, gigaflops, copied_gigabytes,
                                              share_of_cores)
};

/// Collective: all ranks at once, for `seconds` or a little longer.
Reports<SpeedFacts> measure_speed(Ranks& ranks, double seconds);

/// `matrix-product`: ranks that would slow down the others, and hosts that run other programs.
Outcome judge_product(const Reports<SpeedFacts>& reports);
/// `memory-copy`: ranks with much slower memory than others.
Outcome judge_copy(const Reports<SpeedFacts>& reports);

/// Memory bandwidth of the slowest rank in GB/s; 0 if none was measured.
double slowest_copy(const Reports<SpeedFacts>& reports);

}  // namespace lockstep::inline v0::apps::doctor
