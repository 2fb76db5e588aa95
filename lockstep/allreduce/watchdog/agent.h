// One rank's part in the watchdog, without its thread and its clock.
#pragma once

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/progress.h"

namespace lockstep::inline v0::allreduce {

/// A reason why the job cannot continue and this rank must exit, or a warning.
struct Finding {
  enum class Reporter {
    this_rank,     ///< this rank prints it
    one_per_host,  ///< all remaining ranks have the same finding; one per host prints it
    other_rank,    ///< another rank prints it or has printed it
  };

  std::string text;
  Reporter reporter = Reporter::this_rank;
  std::chrono::milliseconds patience{
      0};             ///< for one_per_host: time to wait for lower ranks to print it
  std::string job{};  ///< for one_per_host: a text that identifies the job, the same on its ranks
  bool is_warning = false;   ///< this rank prints it, and the job continues
  bool takes_advice = true;  ///< whether WatchdogOptions::advice may help
};

/// Seconds after a rank has left with an error in which its consequences are not reported, so that
/// the error itself is reported first.
inline constexpr double kEndingSeconds = 10;

/// Times are in seconds of an AwakeClock that starts at 0 with this object. Not thread-safe.
class Agent {
 public:
  Agent() = default;
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  virtual ~Agent() = default;

  /// The rank of this agent.
  virtual int rank() const = 0;
  /// Adds the descriptors to poll until the next heartbeat.
  virtual void add_interests(std::vector<pollfd>& interests) const = 0;
  /// Processes received messages.
  virtual std::optional<Finding> receive(double now) = 0;
  /// Sends the state of this rank's replicas and judges the job. Call it at every heartbeat.
  virtual std::optional<Finding> beat(double now, const std::vector<ReplicaView>& mine,
                                      const std::vector<std::string>& buckets) = 0;
  /// Makes connected ranks exit, too. Returns when they do, or after `limit`.
  virtual void broadcast_failure(const std::string& text, std::chrono::milliseconds limit) = 0;
  /// Announces that this rank has failed and will exit: for kEndingSeconds the exit of a rank is
  /// not a finding. This rank is still watched.
  virtual void announce_error(double now) = 0;
  /// Whether a rank, this one or another, has announced its failure within the last kEndingSeconds.
  virtual bool is_ending(double now) const = 0;
  /// Ends the watch of this rank. Returns when the others have been notified, or after `limit`.
  virtual void send_goodbye(bool after_error, std::chrono::milliseconds limit) = 0;
};

}  // namespace lockstep::inline v0::allreduce
