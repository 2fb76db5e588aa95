// How fast each rank computes and copies while all others do.
#pragma once

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

struct SpeedFacts {
  int cores = 1;                ///< that are this rank's own
  double gigaflops = 0;         ///< of a product of matrices of 512 x 512, 10^9 operations a second
  double copied_gigabytes = 0;  ///< memory copied in a second, 10^9 bytes
  double share_of_cores = 1;    ///< of the time of its cores that this rank got; 1: nobody else was there

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(SpeedFacts, cores, gigaflops, copied_gigabytes, share_of_cores)
};

/// Collective: all ranks at once, for `seconds` or a little longer.
Reports<SpeedFacts> measure_speed(Ranks& ranks, double seconds);

/// `matrix-product`: ranks that the others would wait for, and hosts that are busy with something else.
Outcome judge_product(const Reports<SpeedFacts>& reports);
/// `memory-copy`: ranks whose memory is much slower than that of others.
Outcome judge_copy(const Reports<SpeedFacts>& reports);

/// Gigabytes a second of the rank whose memory is slowest; 0 where none was measured.
double slowest_copy(const Reports<SpeedFacts>& reports);

}  // namespace lockstep::apps::doctor
