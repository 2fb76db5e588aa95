// The events of one rank in a trace of a job, and the clock that all ranks share there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/trace/events.h"

namespace lockstep::trace {

/// The clock of a rank beside that of rank 0, at one moment.
struct ClockOffset {
  std::int64_t time = 0;         ///< of the measurement, on the rank's own clock, in nanoseconds
  std::int64_t offset = 0;       ///< the rank's clock minus that of rank 0, in nanoseconds
  std::int64_t uncertainty = 0;  ///< the offset is at most so much larger or smaller
};

/// A piece of work of a thread.
struct Slice {
  std::int64_t begin = 0;  ///< nanoseconds on the clock of rank 0
  std::int64_t end = 0;    ///< the same; not before `begin`
  const char* name = "";
  std::int32_t number = -1;    ///< as of Event
  std::int64_t step = 0;       ///< in which it began
  std::uint64_t sequence = 0;  ///< as of Event
};

/// What one rank contributes to a trace.
struct RankTrace {
  int rank = 0;
  std::string host = {};           ///< name of its host
  std::int64_t process = 0;        ///< process ID
  std::vector<ClockOffset> clock;  ///< measured at the beginning and at the end; at least one
  std::vector<ThreadEvents> threads;

  /// The time of rank 0 at which this rank's clock showed `time`: the offset between the two
  /// measurements is interpolated, since clocks differ in speed by some millionths.
  std::int64_t on_common_clock(std::int64_t time) const;
  /// The largest uncertainty of its measurements, in nanoseconds.
  std::int64_t uncertainty() const;
  /// Number of events that were overwritten before they were collected.
  std::uint64_t lost() const;
};

/// The pieces of work of a thread, in the order of their beginnings, outer ones first: two of them
/// are either nested or disjoint. What began before the first event or ended after the last one is
/// cut there.
std::vector<Slice> slices_of(const RankTrace& rank, const ThreadEvents& thread);

/// Moves the clocks of hosts within their uncertainties so that no rank leaves an all-reduce before
/// all have entered it, as far as that is possible. What a clock is moved adds to its uncertainty.
/// Ranks whose clocks are the same, those of one host, are moved together.
void order_collectives(std::span<RankTrace> ranks);

/// Serialized, for another rank of the job (of the same kind of machine).
std::string pack(const RankTrace& rank);
/// What pack() returned. Throws Error (communication) for anything else.
RankTrace unpack(const std::string& packed);

}  // namespace lockstep::trace
