// Rank 0's part in the watchdog: receives the reports of all ranks and judges.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/agent.h"
#include "lockstep/allreduce/watchdog/message.h"
#include "lockstep/allreduce/watchdog/verdict.h"
#include "lockstep/net/connection.h"

namespace lockstep::inline v0::allreduce {

/// Where other ranks arrive at rank 0.
class Entrance {
 public:
  virtual ~Entrance() = default;
  /// The authenticated connections that have arrived.
  virtual std::vector<std::unique_ptr<net::FrameChannel>> arrivals(double now) = 0;
  /// Adds the descriptors to poll for more.
  virtual void add_interests(std::vector<pollfd>& interests, double now) const = 0;
};

class Coordinator final : public Agent {
 public:
  /// `ranks`: number of ranks of the job. `invitation`: how the others connect to `entrance`, which
  /// is null if there are none.
  Coordinator(int ranks, Invitation invitation, std::unique_ptr<Entrance> entrance);

  const Invitation& invitation() const { return invitation_; }
  /// Number of other ranks that have connected and reported.
  int reported() const;

  int rank() const override { return 0; }
  void add_interests(std::vector<pollfd>& interests) const override;
  std::optional<Finding> receive(double now) override;
  std::optional<Finding> beat(double now, const std::vector<ReplicaView>& mine,
                              const std::vector<std::string>& buckets) override;
  void broadcast_failure(const std::string& text, std::chrono::milliseconds limit) override;
  void announce_error(double now) override;
  bool is_ending(double now) const override { return now < ending_until_; }
  void send_goodbye(bool after_error, std::chrono::milliseconds limit) override;

 private:
  /// An authenticated connection whose rank is not known yet.
  struct Newcomer {
    std::unique_ptr<net::FrameChannel> connection;
    double since = 0;
  };
  struct Peer {
    std::unique_ptr<net::FrameChannel> connection;
    double received_at = 0;
  };

  void accept_connections(double now);
  bool admit(Newcomer& newcomer, double now);
  bool receive_from(int rank, double now);
  void process(int rank, const net::Frame& message, double now);
  std::optional<Finding> liveness_finding() const;
  std::optional<Finding> warning(const std::optional<LongWait>& wait);
  std::vector<net::FrameChannel*> connections();

  Invitation invitation_;
  std::unique_ptr<Entrance> entrance_;
  double now_ = 0;  // time of the last call
  std::vector<Newcomer> newcomers_;
  std::vector<Peer> peers_;      // by rank; element 0 is unused
  std::vector<RankView> views_;  // by rank
  std::vector<std::string> buckets_;
  double ending_until_ = 0;
  double next_warning_ = 0;  // length of the wait, in seconds
};

}  // namespace lockstep::inline v0::allreduce
