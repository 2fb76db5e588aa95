// What one rank recorded, for tests of traces.
#pragma once

#include "lockstep/base/trace/rank_trace.h"

namespace lockstep::inline v0::trace {

/// Events of a thread: a step with laps and a collective, on a clock that is 1,000 ns ahead.
inline RankTrace traced_rank() {
  RankTrace rank{.rank = 1,
                 .host = "h",
                 .process = 77,
                 .clock = {{.time = 1'000, .offset = 1'000, .uncertainty = 12}},
                 .threads = {}};
  const auto event = [](std::int64_t time, EventKind kind, const char* name, int number = -1,
                        std::uint64_t sequence = 0) {
    return Event{.time = time,
                 .name = name,
                 .kind = kind,
                 .number = number,
                 .step = 5,
                 .sequence = sequence};
  };
  using enum EventKind;
  rank.threads.push_back(
      {.thread = "main",
       .recorded = 9,
       .lost = 2,
       .events = {event(2'000, end, "an earlier span"), event(3'000, begin, "step"),
                  event(3'000, lap, "conv1 forward"), event(4'000, lap, "conv2 forward"),
                  event(6'000, lap, ""), event(7'000, begin, "all_reduce", 3, 44),
                  event(8'500, end, "all_reduce", 3, 44), event(9'000, mark, "point"),
                  event(9'500, end, "step")}});
  rank.threads.push_back({.thread = "reductions",
                          .recorded = 2,
                          .events = {event(5'000, begin, "cut"), event(6'000, lap, "off")}});
  return rank;
}

}  // namespace lockstep::inline v0::trace
