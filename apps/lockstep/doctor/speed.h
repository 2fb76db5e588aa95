// Checks: computing and copying speed of each rank while all ranks work.
#pragma once

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct SpeedFacts {
  int cores = 1;                ///< number of cores of this rank
  double gigaflops = 0;         ///< GFLOP/s of a product of 512 x 512 matrices
  double copied_gigabytes = 0;  ///< GB/s of copying memory, 10^9 bytes
  double share_of_cores = 1;    ///< share of its cores' time that this rank got; 1: no other program used them

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(SpeedFacts, cores, gigaflops, copied_gigabytes, share_of_cores)
};

/// Collective: all ranks at once, for `seconds` or a little longer.
Reports<SpeedFacts> measure_speed(Ranks& ranks, double seconds);

/// `matrix-product`: ranks that would slow down the others, and hosts that run other programs.
Outcome judge_product(const Reports<SpeedFacts>& reports);
/// `memory-copy`: ranks with much slower memory than others.
Outcome judge_copy(const Reports<SpeedFacts>& reports);

/// Memory bandwidth of the slowest rank in GB/s; 0 if none was measured.
double slowest_copy(const Reports<SpeedFacts>& reports);

}  // namespace lockstep::apps::doctor
