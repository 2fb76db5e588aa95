// The events of one rank in a trace of a job, and their conversion to the common clock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/trace/events.h"

namespace lockstep::inline v0::trace {

/// A measurement of a rank's clock against that of rank 0.
struct ClockOffset {
  std::int64_t time = 0;         ///< time of the measurement by the rank's clock, in nanoseconds
  std::int64_t offset = 0;       ///< the rank's clock minus that of rank 0, in nanoseconds
  std::int64_t uncertainty = 0;  ///< maximum error of the offset, in nanoseconds
};

/// A piece of work of a thread.
struct Slice {
  std::int64_t begin = 0;  ///< nanoseconds on the clock of rank 0
  std::int64_t end = 0;    ///< nanoseconds on the clock of rank 0; not before `begin`
  const char* name = "";
  std::int32_t number = -1;    ///< see Event
  std::int64_t step = 0;       ///< step in which it began
  std::uint64_t sequence = 0;  ///< see Event
};

/// What one rank contributes to a trace.
struct RankTrace {
  int rank = 0;
  std::string host = {};           ///< host name
  std::int64_t process = 0;        ///< process ID
  std::vector<ClockOffset> clock;  ///< measured at the beginning and at the end; at least one
  std::vector<ThreadEvents> threads;

  /// Converts `time` from this rank's clock to that of rank 0. The offset is interpolated between
  /// the measurements, because clocks drift.
  std::int64_t on_common_clock(std::int64_t time) const;
  /// The largest uncertainty of the measurements, in nanoseconds.
  std::int64_t uncertainty() const;
  /// Number of events that were overwritten before they were collected.
  std::uint64_t lost() const;
};

/// The slices of a thread, by begin time, outer ones first. Any two are nested or disjoint. Slices
/// that began before the first event or ended after the last one are cut there.
std::vector<Slice> slices_of(const RankTrace& rank, const ThreadEvents& thread);

/// Moves the clocks of hosts within their uncertainties so that no rank leaves an all-reduce before
/// all have entered it, as far as that is possible. The correction is added to the uncertainty of
/// the clock. Ranks of one host share a clock and are moved together.
void order_collectives(std::span<RankTrace> ranks);

/// Serialized, for another rank of the job (of the same kind of machine).
std::string pack(const RankTrace& rank);
/// What pack() returned. Throws Error (communication) for anything else.
RankTrace unpack(const std::string& packed);

}  // namespace lockstep::inline v0::trace
