// One rank's part in the watch, without the thread that runs it and without a clock of its own.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/progress.h"

namespace lockstep::allreduce {

/// The job cannot go on, and this rank is to leave.
struct Finding {
  enum class Voice {
    loud,        ///< this rank tells the people
    one_a_host,  ///< every rank that is left found the same; one of each host tells
    silent,      ///< another rank tells, or has told
  };

  std::string text;
  Voice voice = Voice::loud;
  std::chrono::milliseconds patience{0};  ///< of one_a_host: how long ranks with lower numbers get to speak first
  std::string job{};                      ///< of one_a_host: the same text in all ranks of this job and in no other
};

/// How long the others get to say why the job ends, after a rank has left because of an error: as long its consequences
/// are not reported.
inline constexpr double kEndingSeconds = 10;

/// Times are seconds of an AwakeClock that starts at 0 with this object. One thread at a time.
class Post {
 public:
  Post() = default;
  Post(const Post&) = delete;
  Post& operator=(const Post&) = delete;
  virtual ~Post() = default;

  /// That it is for.
  virtual int rank() const = 0;
  /// Adds what to poll for until the next beat.
  virtual void add_interests(std::vector<pollfd>& interests) const = 0;
  /// Takes in what has arrived.
  virtual std::optional<Finding> receive(double now) = 0;
  /// Tells the others about this rank's replicas, and judges. To be called at every heartbeat.
  virtual std::optional<Finding> beat(double now, const std::vector<ReplicaView>& mine,
                                      const std::vector<std::string>& buckets) = 0;
  /// Makes the others leave too, as far as they listen to this rank. Returns when they do, or after `limit`.
  virtual void spread(const std::string& text, std::chrono::milliseconds limit) = 0;
  /// This rank has failed and is about to leave: for kEndingSeconds nobody's end is a finding. It is watched as before.
  virtual void announce_error(double now) = 0;
  /// This rank is not to be watched any more. Returns when the others know, or after `limit`.
  virtual void say_goodbye(bool after_error, std::chrono::milliseconds limit) = 0;
};

}  // namespace lockstep::allreduce
