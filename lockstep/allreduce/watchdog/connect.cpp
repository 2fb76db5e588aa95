#include "lockstep/allreduce/watchdog/connect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/interfaces.h"

namespace lockstep::inline v0::allreduce {
namespace {

using std::chrono::milliseconds;

class ListeningEntrance final : public Entrance {
 public:
  ListeningEntrance(std::vector<net::Listener> listeners, const net::JobSecret& secret)
      : pending_(std::move(listeners), secret, net::kWatchPurpose) {}

  std::vector<std::unique_ptr<net::FrameChannel>> arrivals(double now) override {
    std::vector<std::unique_ptr<net::FrameChannel>> arrived;
    for (FileDescriptor& socket : pending_.advance(now))
      arrived.push_back(std::make_unique<net::Connection>(std::move(socket), kMessageLimits));
    return arrived;
  }
  void add_interests(std::vector<pollfd>& interests, double now) const override {
    pending_.add_interests(interests, now);
  }

 private:
  net::PendingConnections pending_;
};

// Timeouts for an address. The second round is for slow hosts.
constexpr std::array kPatience = {milliseconds(1000), milliseconds(5000)};
constexpr milliseconds kPause(20);  // before the next attempt if rank 0 has no free slot

/// Waits for the reply to a hello.
bool is_welcomed(net::Connection& connection, milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    for (const net::Frame& message : connection.receive())
      if (message.is(MessageKind::welcome)) return true;
    const auto left =
        std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0 || !connection.is_open()) return false;
    pollfd interest = connection.interest();
    poll(&interest, 1, static_cast<int>(left));
  }
}

std::unique_ptr<net::FrameChannel> try_connect(const net::Endpoint& endpoint, const Hello& hello,
                                               const net::JobSecret& secret, milliseconds limit,
                                               std::string& why) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  FileDescriptor socket = net::connect_to(endpoint.address, endpoint.port, limit, why);
  if (!socket.is_open()) return nullptr;
  while (!net::authenticate(socket, secret, net::kWatchPurpose, limit, why)) {
    if (why != net::kClosedByPeer || std::chrono::steady_clock::now() >= deadline) return nullptr;
    std::this_thread::sleep_for(kPause);
    socket = net::connect_to(endpoint.address, endpoint.port, limit, why);
    if (!socket.is_open()) return nullptr;
  }
  auto connection = std::make_unique<net::Connection>(std::move(socket), kMessageLimits);
  connection->send({MessageKind::hello, write_hello(hello)});
  if (is_welcomed(*connection, limit)) return connection;
  why = "the listener there did not answer";
  return nullptr;
}

std::unique_ptr<net::FrameChannel> connect_to_rank_zero(const Hello& hello,
                                                        const Invitation& invitation) {
  const net::JobSecret secret(invitation.secret, "watchdog");
  std::vector<std::string> tried;
  for (const milliseconds limit : kPatience) {
    tried.clear();
    for (const net::Endpoint& endpoint : invitation.endpoints) {
      std::string why;
      if (auto connection = try_connect(endpoint, hello, secret, limit, why)) return connection;
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

std::unique_ptr<Coordinator> make_coordinator(int ranks, std::string host, double stall_timeout,
                                              double heartbeat,
                                              const std::vector<std::string>& addresses) {
  const auto secret = net::JobSecret::draw();
  Invitation invitation{.secret = secret.text(),
                        .host = std::move(host),
                        .stall_timeout = stall_timeout,
                        .heartbeat = heartbeat};
  if (ranks == 1) return std::make_unique<Coordinator>(1, std::move(invitation), nullptr);
  std::vector<net::Listener> listeners;
  for (const std::string& address : addresses) {
    listeners.emplace_back(address, std::uint16_t{0});
    invitation.endpoints.push_back({.address = address, .port = listeners.back().port()});
  }
  if (addresses.empty()) {
    listeners.emplace_back();
    for (const std::string& address : net::addresses_for_other_hosts())
      invitation.endpoints.push_back({.address = address, .port = listeners.back().port()});
  }
  return std::make_unique<Coordinator>(
      ranks, std::move(invitation),
      std::make_unique<ListeningEntrance>(std::move(listeners), secret));
}

std::unique_ptr<Member> make_member(int rank, std::string host, const Invitation& invitation) {
  auto connection = connect_to_rank_zero({.rank = rank, .host = host}, invitation);
  return std::make_unique<Member>(rank, std::move(host), invitation, name_of_job(invitation),
                                  std::move(connection));
}

}  // namespace lockstep::inline v0::allreduce
