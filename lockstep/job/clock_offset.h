// The offsets between the clocks of the hosts of a job.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/base/trace/rank_trace.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::job {

/// A message of rank 0 and its answer, in nanoseconds of steady clocks.
struct ClockExchange {
  std::int64_t sent = 0;      ///< by rank 0, on its clock
  std::int64_t theirs = 0;    ///< on the clock of the other rank, when it answered
  std::int64_t received = 0;  ///< by rank 0, on its clock
};

/// The offset of the other rank's clock at the exchange that was answered fastest. Each exchange
/// bounds it: the answer was not before the message was sent, nor after it was received (Cristian,
/// 1989). The result is the middle of what all exchanges allow, so its uncertainty is at most half
/// of the shortest round trip, and less if the fastest request and the fastest answer are in
/// different exchanges. Between two exchanges, the clocks may drift apart by 1 ms per second, twice
/// the most by which NTP changes the speed of a clock. At least one exchange.
trace::ClockOffset estimate_offset(std::span<const ClockExchange> exchanges);

/// The offset of this rank's steady clock to that of rank 0. Rank 0 exchanges 100 messages with one
/// rank of each other host, or up to 2,000 until the uncertainty is below 50 us; all ranks of a
/// host have the same result. 0 for ranks on the host of rank 0, which share its clock. Collective
/// over the ranks of `session`, while no reduction is in flight.
trace::ClockOffset measure_clock_offset(const Session& session);
/// measure_clock_offset() with other hosts than those of `session`: `host_of_rank` has a host
/// number per rank, the same on all ranks.
trace::ClockOffset measure_clock_offset(const Session& session, std::span<const int> host_of_rank);

}  // namespace lockstep::inline v0::job
