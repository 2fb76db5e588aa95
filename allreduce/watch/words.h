// How verdicts speak of ranks, replicas, buckets and places in a step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "allreduce/watch/judgement.h"

namespace lockstep::allreduce {

/// A replica and where it lives.
struct ReplicaPlace {
  int rank = 0;
  int replica = 0;  ///< number over all ranks
  const ReplicaView* view = nullptr;
};

/// "0,1,3", and "0-6,9" where four or more follow each other. `numbers` ascend.
std::string list_of(std::span<const int> numbers);

/// The words for one set of views, which it refers to.
class Words {
 public:
  Words(std::span<const RankView> ranks, std::span<const std::string> buckets);

  /// "rank 2, host H"
  std::string rank(int rank) const;
  /// "rank 2, host H"; "replica 3 (rank 1, host H)" where any rank drives several replicas.
  std::string replica(const ReplicaPlace& place) const;
  /// "ranks 0,1,3 are", "replica 2 is": all of one rank count as the rank where each drives one.
  std::string replicas_are(std::span<const ReplicaPlace> places) const;
  /// The same without the verb.
  std::string replicas(std::span<const ReplicaPlace> places) const;
  /// "bucket 3 (layers conv4 .. fc1)"
  std::string bucket(int number) const;
  /// "all_reduce of bucket 3 (layers conv4 .. fc1)"
  std::string collective(const std::string& operation, int bucket) const;
  /// "at step 100, in all_reduce of bucket 3 (…)", "before the first step, in starting"
  std::string whereabouts(const ActivityState& state) const;
  /// "bucket 3 (…)", the one that follows the last entered; empty where that is not known.
  std::string next_bucket(const ActivityState& state) const;
  /// "rank 2, host H, has left", "rank 3, host H, has left after an error": one for each that has.
  std::vector<std::string> who_left() const;

 private:
  std::span<const RankView> ranks_;
  std::span<const std::string> buckets_;
  bool several_replicas_ = false;
};

}  // namespace lockstep::allreduce
