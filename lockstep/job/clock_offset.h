// The clocks of the ranks of a job beside each other.
#pragma once

#include "lockstep/base/trace/rank_trace.h"
#include "lockstep/job/session.h"

namespace lockstep::job {

/// The offset of this rank's steady clock to that of rank 0. Rank 0 exchanges 100 messages with
/// each rank of another host; the one that was answered fastest counts, whose answer was half-way
/// with an uncertainty of half its time (Cristian, 1989). 0 for ranks on the host of rank 0, which
/// have the same clock. Collective over the ranks of `session`, while no reduction is in flight.
trace::ClockOffset measure_clock_offset(const Session& session);

}  // namespace lockstep::job
