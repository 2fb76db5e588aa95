// Check: the processors that each rank may use, CPU quotas and clock governors.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct CoreFacts {
  std::vector<int> processors = {};  ///< affinity of this rank, ascending
  int online = 0;                    ///< number of processors of the host, or of its container's cpuset
  int threads = 0;                   ///< OMP_NUM_THREADS; 0: not set
  double quota = 0;                  ///< CPU quota of the control group, in processors; 0: no limit
  std::string governor = {};         ///< CPU frequency governor; empty if unknown
  std::string driver = {};           ///< CPU frequency driver

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(CoreFacts, processors, online, threads, quota, governor, driver)
};

/// Must be called by a thread with the binding of its rank.
CoreFacts measure_cores();

/// `cores`: ranks that share processors, fewer processors than threads, quotas, low clock frequencies.
Outcome judge_cores(const Reports<CoreFacts>& reports);

}  // namespace lockstep::apps::doctor
