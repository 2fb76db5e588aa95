// Which processors each rank may use, and how fast they are let run.
#pragma once

#include <cstdint>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct CoreFacts {
  std::vector<int> processors = {};  ///< that this rank may run on, ascending
  int online = 0;                    ///< processors of the host, or of the set that its container confines it to
  int threads = 0;                   ///< that OMP_NUM_THREADS asks for; 0: it is not set
  double quota = 0;                  ///< processors' worth of time that the control group grants; 0: no limit
  std::string governor = {};         ///< of the clock; empty where the system does not tell
  std::string driver = {};           ///< that obeys the governor

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(CoreFacts, processors, online, threads, quota, governor, driver)
};

/// Of the calling thread, whose binding is that of its rank.
CoreFacts measure_cores();

/// `cores`: ranks of a host on the same processors, masks smaller than the threads, quotas, sleepy clocks.
Outcome judge_cores(const Reports<CoreFacts>& reports);

}  // namespace lockstep::apps::doctor
