// Decides from what is known of all ranks whether the job can go on, and who is to be named if not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "allreduce/watch/activity_age.h"

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

}  // namespace lockstep::allreduce
