// Decides from the state of all ranks whether the job can continue, and which ranks are the cause
// if not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/progress.h"

namespace lockstep::inline v0::allreduce {

/// The known state of one rank.
struct RankView {
  enum class Link {
    connected,
    left,    ///< sent a goodbye; no longer watched
    failed,  ///< sent a goodbye after an error
    gone,    ///< its connection ended without a goodbye
  };

  std::string host;
  Link link = Link::connected;
  std::string reason;         ///< for gone, human-readable: "its connection closed"
  double silent_seconds = 0;  ///< since its last message
  /// As last reported, with those of groups of ranks last; empty before the first report.
  std::vector<ReplicaView> replicas;

  /// Whether it is connected, has finished, and waits for the other ranks to end.
  bool waits_for_end() const;
};

/// Why a job cannot continue.
struct Verdict {
  enum class Kind {
    gone,    ///< ranks whose process ended
    left,    ///< ranks at the end of their session, without which a collective cannot complete
    silent,  ///< ranks without heartbeats: stopped, or their host is unreachable
    absent,  ///< replicas that others wait for in a collective and that make no progress
    stuck,   ///< no replica is absent, but the collective does not end
    still,   ///< no replica waits for another, and none makes progress
  };

  Kind kind = Kind::gone;
  std::vector<int> ranks{};  ///< the ranks named as the cause; empty for stuck and still
  std::string text{};        ///< "[watchdog] expected …; rank 2, host H, …"
};

/// Finds ranks that are gone or have been silent for `stall_timeout` seconds. Element r of `ranks`
/// is rank r; not all ranks need to be included. `buckets`: the contents of each bucket, for the
/// text; may be empty.
std::optional<Verdict> judge_liveness(std::span<const RankView> ranks, double stall_timeout,
                                      std::span<const std::string> buckets);

/// Finds collectives that ranks have entered after others have reached the end of their session: a
/// programming error that waiting cannot resolve. `ranks` has all ranks.
std::optional<Verdict> judge_departures(std::span<const RankView> ranks,
                                        std::span<const std::string> buckets);

/// Finds collectives that cannot complete, and jobs without progress. `ranks` has all ranks. A
/// replica that makes progress is never named, however long the others wait for it.
std::optional<Verdict> judge_progress(std::span<const RankView> ranks, double stall_timeout,
                                      std::span<const std::string> buckets);

/// A long wait in a collective for ranks that work outside of a training without calls on their
/// Activity. The job continues.
struct LongWait {
  double seconds = 0;  ///< so far
  std::string text{};  ///< "[watchdog] expected …; rank 2, host H, …"
};

/// Finds a wait of at least `stall_timeout` seconds. `ranks` has all ranks.
std::optional<LongWait> find_long_wait(std::span<const RankView> ranks, double stall_timeout,
                                       std::span<const std::string> buckets);

// Descriptions of ranks, replicas, buckets and positions in a step for verdicts.

/// A replica and its rank.
struct ReplicaPlace {
  int rank = 0;
  int replica = 0;  ///< global number
  const ReplicaView* view = nullptr;
};

/// "0,1,3", or "0-6,9" for runs of four or more. `numbers` are in ascending order.
std::string list_of(std::span<const int> numbers);

/// Descriptions for one set of views, to which it keeps references.
class Words {
 public:
  Words(std::span<const RankView> ranks, std::span<const std::string> buckets);

  /// "rank 2, host H"
  std::string rank(int rank) const;
  /// "rank 2, host H"; "replica 3 (rank 1, host H)" if any rank has several replicas.
  std::string replica(const ReplicaPlace& place) const;
  /// "ranks 0,1,3 are", or "replica 2 is" if any rank has several replicas.
  std::string replicas_are(std::span<const ReplicaPlace> places) const;
  /// replicas_are() without the verb.
  std::string replicas(std::span<const ReplicaPlace> places) const;
  /// "bucket 3 (layers conv4 .. fc1)"
  std::string bucket(int number) const;
  /// "all_reduce of bucket 3 (layers conv4 .. fc1)"
  std::string collective(const std::string& operation, int bucket) const;
  /// "at step 100, in all_reduce of bucket 3 (…)", "before the first step, in starting"
  std::string position(const ReplicaView& view) const;
  /// "bucket 3 (…)", the bucket after the last one entered; empty if unknown.
  std::string next_bucket(const ActivityState& state) const;
  /// "rank 2, host H, has left", "rank 3, host H, has left after an error": one per rank that has
  /// left.
  std::vector<std::string> departed() const;

 private:
  std::span<const RankView> ranks_;
  std::span<const std::string> buckets_;
  bool several_replicas_ = false;
};

}  // namespace lockstep::inline v0::allreduce
