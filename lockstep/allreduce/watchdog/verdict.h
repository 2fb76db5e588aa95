// Decides from what is known of all ranks whether the job can go on, and who is to be named if not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/progress.h"

namespace lockstep::allreduce {

/// One rank, as known where the judgement is made.
struct RankView {
  enum class Link {
    connected,
    left,    ///< said goodbye: is not watched any more
    failed,  ///< said goodbye because of an error of its own
    gone,    ///< its connection ended without a goodbye
  };

  std::string host;
  Link link = Link::connected;
  std::string reason;                 ///< of gone, for people: "its connection closed"
  double silent_seconds = 0;          ///< since it was last heard of
  std::vector<ReplicaView> replicas;  ///< as it last reported; empty before it did

  /// Whether it is connected and has done all that it had to do: it waits for the others to end too.
  bool waits_for_end() const;
};

/// Why a job cannot go on.
struct Verdict {
  enum class Kind {
    gone,    ///< ranks whose process ended
    silent,  ///< ranks that were not heard of: stopped, or their host is out of reach
    absent,  ///< replicas that the others wait for in a collective, and that make no progress
    stuck,   ///< nobody is absent, and the collective does not end
    still,   ///< nobody waits for anyone, and nobody makes progress
  };

  Kind kind = Kind::gone;
  std::vector<int> ranks{};  ///< that are named as the cause; empty for stuck and still
  std::string text{};        ///< "[watchdog] needed …; rank 2, host H, …"
};

/// Names ranks that are gone or were not heard of for `stall_timeout` seconds. Element r of `ranks` is rank r; they
/// need not be all. `buckets`: what is in each bucket, for the text; may be empty.
std::optional<Verdict> judge_signs_of_life(std::span<const RankView> ranks, double stall_timeout,
                                           std::span<const std::string> buckets);

/// Finds collectives that nobody can leave, and jobs that stand still. `ranks` are all. A replica that makes progress
/// is never named, however long the others wait for it.
std::optional<Verdict> judge_progress(std::span<const RankView> ranks, double stall_timeout,
                                      std::span<const std::string> buckets);

// How verdicts speak of ranks, replicas, buckets and places in a step.

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
