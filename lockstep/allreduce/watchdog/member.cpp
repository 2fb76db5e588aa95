#include "lockstep/allreduce/watchdog/member.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/net/authentication.h"

namespace lockstep::inline v0::allreduce {
namespace {

using Kind = MessageKind;
using Link = RankView::Link;
using std::chrono::milliseconds;

// Timeouts for an address. The second round is for slow hosts.
constexpr std::array kPatience = {milliseconds(1000), milliseconds(5000)};
constexpr milliseconds kPause(20);  // before the next attempt if rank 0 has no free slot

/// Waits for the reply to a hello.
bool is_welcomed(net::Connection& connection, milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    for (const net::Frame& message : connection.receive())
      if (message.is(Kind::welcome)) return true;
    const auto left =
        std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0 || !connection.is_open()) return false;
    pollfd interest = connection.interest();
    poll(&interest, 1, static_cast<int>(left));
  }
}

std::optional<net::Connection> try_connect(const net::Endpoint& endpoint, const Hello& hello,
                                           const net::JobSecret& secret, milliseconds limit,
                                           std::string& why) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  FileDescriptor socket = net::connect_to(endpoint.address, endpoint.port, limit, why);
  if (!socket.is_open()) return std::nullopt;
  while (!net::authenticate(socket, secret, net::kWatchPurpose, limit, why)) {
    if (why != net::kClosedByPeer || std::chrono::steady_clock::now() >= deadline)
      return std::nullopt;
    std::this_thread::sleep_for(kPause);
    socket = net::connect_to(endpoint.address, endpoint.port, limit, why);
    if (!socket.is_open()) return std::nullopt;
  }
  net::Connection connection(std::move(socket), kMessageLimits);
  connection.send({Kind::hello, write_hello(hello)});
  if (is_welcomed(connection, limit)) return connection;
  why = "the listener there did not answer";
  return std::nullopt;
}

net::Connection connect_to_rank_zero(const Hello& hello, const Invitation& invitation) {
  const net::JobSecret secret(invitation.secret, "watchdog");
  std::vector<std::string> tried;
  for (const milliseconds limit : kPatience) {
    tried.clear();
    for (const net::Endpoint& endpoint : invitation.endpoints) {
      std::string why;
      if (auto connection = try_connect(endpoint, hello, secret, limit, why))
        return std::move(*connection);
      tried.push_back(fmt::format("{} port {} ({})", endpoint.address, endpoint.port, why));
    }
  }
  throw Error(ErrorCategory::communication, "watchdog",
              fmt::format("expected a TCP connection from rank {} (host {}) to rank 0 (host {})",
                          hello.rank, hello.host, invitation.host),
              fmt::format("tried {}", tried.empty() ? "no address"
                                                    : fmt::format("{}", fmt::join(tried, ", "))));
}

/// An identifier of the job, derived from the secret: known to all its ranks, unpredictable for
/// others.
std::string name_of_job(const Invitation& invitation) {
  std::string name;
  for (const std::uint8_t byte :
       net::JobSecret(invitation.secret, "watchdog").mac("name of the job"))
    name += fmt::format("{:02x}", byte);
  return name;
}

}  // namespace

Member::Member(int rank, std::string host, const Invitation& invitation)
    : rank_(rank),
      host_(std::move(host)),
      job_(name_of_job(invitation)),
      stall_timeout_(invitation.stall_timeout),
      // Rank 0 judges first because it has more information.
      grace_(2 * invitation.heartbeat + 1) {
  rank_zero_.host = invitation.host;
  connection_ = connect_to_rank_zero({.rank = rank, .host = host_}, invitation);
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
    net::send_last_frame({&*connection_}, {Kind::goodbye, write_goodbye(after_error)}, limit);
}

}  // namespace lockstep::inline v0::allreduce
