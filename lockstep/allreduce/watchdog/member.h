// The part of every rank except 0 in the watchdog: reports to rank 0, follows its verdicts, and
// watches rank 0. After rank 0 has left, this rank watches itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/allreduce/watchdog/agent.h"
#include "lockstep/allreduce/watchdog/message.h"
#include "lockstep/allreduce/watchdog/verdict.h"

namespace lockstep::inline v0::allreduce {

class Member final : public Agent {
 public:
  /// `host`: the host of this rank. `job`: a text that identifies the job, the same on its ranks.
  /// `connection`: to rank 0, which has welcomed this rank.
  Member(int rank, std::string host, const Invitation& invitation, std::string job,
         std::unique_ptr<net::FrameChannel> connection);

  int rank() const override { return rank_; }
  void add_interests(std::vector<pollfd>& interests) const override;
  std::optional<Finding> receive(double now) override;
  std::optional<Finding> beat(double now, const std::vector<ReplicaView>& mine,
                              const std::vector<std::string>& buckets) override;
  void broadcast_failure(const std::string& text, std::chrono::milliseconds limit) override;
  void announce_error(double now) override;
  bool is_ending(double now) const override { return now < ending_until_; }
  void send_goodbye(bool after_error, std::chrono::milliseconds limit) override;

 private:
  std::optional<Finding> process(const net::Frame& message, double now);
  std::optional<Finding> lost_rank_zero() const;
  std::optional<Finding> stuck_without_rank_zero(const std::vector<ReplicaView>& mine) const;
  Finding found_by_all(std::string text) const;

  int rank_;
  std::string host_;
  std::string job_;
  double stall_timeout_;
  double grace_;
  std::unique_ptr<net::FrameChannel> connection_;  // none once rank 0 has left
  RankView rank_zero_;
  double received_at_ = 0;
  double ending_until_ = 0;
  std::vector<std::string> buckets_;
};

}  // namespace lockstep::inline v0::allreduce
