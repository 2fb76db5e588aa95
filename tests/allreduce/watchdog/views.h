// States of ranks for the tests of verdicts.
#pragma once

#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/verdict.h"

namespace lockstep::inline v0::allreduce {

inline constexpr double kTimeout = 120;
inline const std::vector<std::string> kBuckets = {"fc3", "fc2", "conv9 .. conv5", "conv4 .. fc1"};

/// Inside collective number `number` (1 is the first), reducing `bucket`, for `seconds`.
inline ReplicaView inside(std::uint64_t number, int bucket, double seconds,
                          std::int64_t step = 100) {
  return {.state = {.step = step,
                    .phase = Phase::compute,
                    .entered = number,
                    .left = number - 1,
                    .operation = "all_reduce",
                    .bucket = bucket,
                    .changes = number},
          .still_seconds = seconds,
          .unreported_seconds = seconds,
          .collective_seconds = seconds};
}

/// Outside, after collective number `number` that reduced `bucket`; nothing changed for `seconds`.
inline ReplicaView outside(std::uint64_t number, int bucket, double seconds,
                           Phase phase = Phase::compute, std::int64_t step = 100) {
  ReplicaView view = inside(number, bucket, seconds, step);
  view.state.phase = phase;
  view.state.left = number;
  return view;
}

/// Like outside(), with progress `moved` seconds ago.
inline ReplicaView busy(std::uint64_t number, int bucket, double seconds, double moved) {
  ReplicaView view = outside(number, bucket, seconds);
  view.still_seconds = moved;
  return view;
}

/// Like outside(), in the program's own code, which makes unreported progress.
inline ReplicaView computing(std::uint64_t number, int bucket, double seconds,
                             Phase phase = Phase::idle) {
  ReplicaView view = outside(number, bucket, seconds, phase);
  view.still_seconds = 0.5;
  return view;
}

/// At the end of its session, after `number` collectives.
inline ReplicaView at_the_end(std::uint64_t number, double seconds) {
  ReplicaView view = inside(kCollectivesBeforeTheEnd + number + 1, -1, seconds, -1);
  view.state.phase = Phase::ending;
  view.state.operation = "the end of the job";
  return view;
}

inline RankView rank_with(std::vector<ReplicaView> replicas, std::string host = "H") {
  RankView rank;
  rank.host = std::move(host);
  rank.replicas = std::move(replicas);
  return rank;
}

inline RankView leaving(RankView rank, RankView::Link link, std::string reason = "") {
  rank.link = link;
  rank.reason = std::move(reason);
  return rank;
}

}  // namespace lockstep::inline v0::allreduce
