#include "lockstep/allreduce/watchdog/member.h"

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep::inline v0::allreduce {
namespace {

using Kind = MessageKind;
using Link = RankView::Link;
using std::chrono::milliseconds;

}  // namespace

Member::Member(int rank, std::string host, const Invitation& invitation, std::string job,
               std::unique_ptr<net::FrameChannel> connection)
    : rank_(rank),
      host_(std::move(host)),
      job_(std::move(job)),
      stall_timeout_(invitation.stall_timeout),
      // Rank 0 judges first because it has more information.
      grace_(2 * invitation.heartbeat + 1),
      connection_(std::move(connection)) {
  rank_zero_.host = invitation.host;
}

void Member::add_interests(std::vector<pollfd>& interests) const {
  if (connection_) interests.push_back(connection_->interest());
}

std::optional<Finding> Member::receive(double now) {
  if (!connection_) return std::nullopt;
  for (const net::Frame& message : connection_->receive())
    if (auto finding = process(message, now)) return finding;
  if (rank_zero_.link != Link::connected) {
    connection_.reset();
    return std::nullopt;
  }
  if (connection_->is_open()) return std::nullopt;
  rank_zero_.link = Link::gone;
  rank_zero_.reason = connection_->reason();
  rank_zero_.silent_seconds = now - received_at_;
  connection_.reset();
  if (is_ending(now))
    return Finding{.text = "the job ends after an error",
                   .reporter = Finding::Reporter::other_rank};
  return lost_rank_zero();
}

std::optional<Finding> Member::process(const net::Frame& message, double now) {
  received_at_ = now;
  if (message.is(Kind::verdict))
    return Finding{.text = message.body, .reporter = Finding::Reporter::other_rank};
  if (message.is(Kind::ending)) ending_until_ = now + kEndingSeconds;
  if (message.is(Kind::goodbye))
    rank_zero_.link = read_goodbye(message.body) ? Link::failed : Link::left;
  if (message.is(Kind::beat))
    if (auto replicas = read_beat(message.body)) rank_zero_.replicas = std::move(*replicas);
  return std::nullopt;
}

std::optional<Finding> Member::beat(double now, const std::vector<ReplicaView>& mine,
                                    const std::vector<std::string>& buckets) {
  buckets_ = buckets;
  if (!connection_) return stuck_without_rank_zero(mine);
  if (connection_->is_flushed()) connection_->send({Kind::beat, write_beat(mine)});
  rank_zero_.silent_seconds = now - received_at_;
  if (rank_zero_.silent_seconds < stall_timeout_ + grace_) return std::nullopt;
  return lost_rank_zero();
}

std::optional<Finding> Member::lost_rank_zero() const {
  const auto verdict = judge_liveness(std::span(&rank_zero_, 1), stall_timeout_, buckets_);
  if (!verdict) return std::nullopt;
  return found_by_all(verdict->text);
}

// After rank 0 has left, a member detects itself that it waits for rank 0 in a collective.
std::optional<Finding> Member::stuck_without_rank_zero(const std::vector<ReplicaView>& mine) const {
  std::vector<RankView> views(static_cast<std::size_t>(rank_) + 1);
  views.front() = rank_zero_;
  views.back().host = host_;
  views.back().replicas = mine;
  const auto verdict = judge_progress(views, stall_timeout_, buckets_);
  if (!verdict) return std::nullopt;
  return found_by_all(verdict->text);
}

Finding Member::found_by_all(std::string text) const {
  return Finding{.text = std::move(text),
                 .reporter = Finding::Reporter::one_per_host,
                 .patience = milliseconds(50) * std::min(rank_ - 1, 20),
                 .job = job_};
}

// The other ranks are connected only to rank 0 and detect its loss themselves.
void Member::broadcast_failure(const std::string& /*text*/, milliseconds /*limit*/) {}

void Member::announce_error(double now) {
  ending_until_ = now + kEndingSeconds;
  if (connection_) connection_->send(Kind::ending);
}

void Member::send_goodbye(bool after_error, milliseconds limit) {
  if (connection_)
    net::send_last_frame({connection_.get()}, {Kind::goodbye, write_goodbye(after_error)}, limit);
}

}  // namespace lockstep::inline v0::allreduce
