#include "lockstep/allreduce/watchdog/coordinator.h"

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep::inline v0::allreduce {
namespace {

using Kind = MessageKind;
using Link = RankView::Link;

constexpr double kHelloPatience = 5;  // seconds until the hello

std::optional<Finding> reported_here(const std::optional<Verdict>& verdict) {
  if (!verdict) return std::nullopt;
  return Finding{.text = verdict->text};
}

}  // namespace

Coordinator::Coordinator(int ranks, Invitation invitation, std::unique_ptr<Entrance> entrance)
    : invitation_(std::move(invitation)),
      entrance_(std::move(entrance)),
      peers_(static_cast<std::size_t>(ranks)),
      views_(static_cast<std::size_t>(ranks)) {
  views_.front().host = invitation_.host;
  for (RankView& view : std::span(views_).subspan(1)) view.host = "?";
}

int Coordinator::reported() const {
  const auto others = std::span(views_).subspan(1);
  return static_cast<int>(
      std::ranges::count_if(others, [](const RankView& view) { return !view.replicas.empty(); }));
}

void Coordinator::add_interests(std::vector<pollfd>& interests) const {
  if (entrance_) entrance_->add_interests(interests, now_);
  for (const Newcomer& newcomer : newcomers_) interests.push_back(newcomer.connection->interest());
  for (const Peer& peer : peers_)
    if (peer.connection) interests.push_back(peer.connection->interest());
}

std::optional<Finding> Coordinator::receive(double now) {
  now_ = now;
  accept_connections(now);
  bool lost = false;
  for (std::size_t rank = 1; rank < peers_.size(); ++rank)
    if (receive_from(static_cast<int>(rank), now)) lost = true;
  return lost ? liveness_finding() : std::nullopt;
}

void Coordinator::accept_connections(double now) {
  if (!entrance_) return;
  for (auto& connection : entrance_->arrivals(now))
    newcomers_.push_back({.connection = std::move(connection), .since = now});
  std::erase_if(newcomers_, [&](Newcomer& newcomer) {
    return admit(newcomer, now) || !newcomer.connection->is_open() ||
           now - newcomer.since > kHelloPatience;
  });
}

/// Returns whether the newcomer is a missing rank and has been accepted as a peer.
bool Coordinator::admit(Newcomer& newcomer, double now) {
  const std::vector<net::Frame> messages = newcomer.connection->receive();
  if (messages.empty()) return false;
  const auto hello =
      messages.front().is(Kind::hello) ? read_hello(messages.front().body) : std::nullopt;
  const auto rank = hello ? static_cast<std::size_t>(hello->rank) : 0;
  if (!hello || rank < 1 || rank >= peers_.size() || views_[rank].link != Link::connected ||
      !views_[rank].replicas.empty()) {
    newcomer.connection->close("not a missing rank");
    return false;
  }
  // A rank that has not reported yet may connect again over another address.
  Peer& peer = peers_[rank];
  peer.connection = std::move(newcomer.connection);
  peer.connection->send(Kind::welcome);
  peer.connection->send({Kind::beat, write_beat(views_.front().replicas)});
  views_[rank].host = hello->host;
  for (std::size_t i = 1; i < messages.size(); ++i)
    process(static_cast<int>(rank), messages[i], now);
  return true;
}

/// Reads from a rank. Returns whether it has just been lost.
bool Coordinator::receive_from(int rank, double now) {
  Peer& peer = peers_[rank];
  RankView& view = views_[rank];
  if (!peer.connection) return false;
  for (const net::Frame& message : peer.connection->receive()) process(rank, message, now);
  const bool closed = !peer.connection->is_open();
  const std::string reason = peer.connection->reason();
  if (closed || view.link != Link::connected) peer.connection.reset();
  if (!closed || view.link != Link::connected || view.replicas.empty()) return false;
  view.reason = reason;
  view.silent_seconds = now - peer.received_at;
  view.link = is_ending(now) ? Link::failed : Link::gone;
  return view.link == Link::gone;
}

void Coordinator::process(int rank, const net::Frame& message, double now) {
  RankView& view = views_[rank];
  peers_[rank].received_at = now;
  if (message.is(Kind::beat)) {
    if (auto replicas = read_beat(message.body)) view.replicas = std::move(*replicas);
  } else if (message.is(Kind::goodbye)) {
    const bool after_error = read_goodbye(message.body);
    view.link = after_error ? Link::failed : Link::left;
    if (after_error) announce_error(now);
  } else if (message.is(Kind::ending)) {
    announce_error(now);
  }
}

std::optional<Finding> Coordinator::beat(double now, const std::vector<ReplicaView>& mine,
                                         const std::vector<std::string>& buckets) {
  buckets_ = buckets;
  views_.front().replicas = mine;
  for (std::size_t rank = 1; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    views_[rank].silent_seconds = now - peer.received_at;
    // Skipped for a rank that does not read, to limit the send buffer.
    if (peer.connection && peer.connection->is_flushed())
      peer.connection->send({Kind::beat, write_beat(mine)});
  }
  if (auto finding = liveness_finding()) return finding;
  // A rank that has failed reports its error first.
  if (const auto left = is_ending(now) ? std::nullopt : judge_departures(views_, buckets_))
    return Finding{.text = left->text, .takes_advice = false};
  const double timeout = invitation_.stall_timeout;
  if (const auto verdict = judge_progress(views_, timeout, buckets_)) return reported_here(verdict);
  return warning(find_long_wait(views_, timeout, buckets_));
}

/// Warns of a wait again each time its length has doubled.
std::optional<Finding> Coordinator::warning(const std::optional<LongWait>& wait) {
  if (!wait) next_warning_ = 0;
  if (!wait || wait->seconds < next_warning_) return std::nullopt;
  next_warning_ = 2 * wait->seconds;
  return Finding{.text = wait->text, .is_warning = true};
}

std::optional<Finding> Coordinator::liveness_finding() const {
  return reported_here(judge_liveness(views_, invitation_.stall_timeout, buckets_));
}

std::vector<net::FrameChannel*> Coordinator::connections() {
  std::vector<net::FrameChannel*> all;
  for (Peer& peer : peers_)
    if (peer.connection && peer.connection->is_open()) all.push_back(peer.connection.get());
  return all;
}

void Coordinator::broadcast_failure(const std::string& text, std::chrono::milliseconds limit) {
  net::send_last_frame(connections(), {Kind::verdict, text}, limit);
}

void Coordinator::announce_error(double now) {
  ending_until_ = now + kEndingSeconds;
  for (net::FrameChannel* connection : connections()) connection->send(Kind::ending);
}

void Coordinator::send_goodbye(bool after_error, std::chrono::milliseconds limit) {
  net::send_last_frame(connections(), {Kind::goodbye, write_goodbye(after_error)}, limit);
}

}  // namespace lockstep::inline v0::allreduce
