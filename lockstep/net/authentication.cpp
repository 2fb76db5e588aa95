#include "lockstep/net/authentication.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <utility>

namespace lockstep::inline v0::net {
namespace {

constexpr double kPause =
    1;  // seconds without accepting after the process ran out of file descriptors
constexpr const char* kOtherUser = "it belongs to another user of this host";

/// One step of a handshake: sends and receives as much as possible without blocking. False if the
/// connection is closed.
bool advance_handshake(int socket, Handshake& handshake, std::string& output) {
  for (;;) {
    output += handshake.drain_output();
    while (!output.empty()) {
      const ssize_t sent =
          ::send(socket, output.data(), output.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return would_block();
      output.erase(0, static_cast<std::size_t>(sent));
    }
    if (handshake.wanted() == 0) return true;
    std::array<char, 128> piece{};
    const ssize_t got =
        recv(socket, piece.data(), std::min(piece.size(), handshake.wanted()), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) return would_block();
    handshake.receive({piece.data(), static_cast<std::size_t>(got)});
  }
}

pollfd interest_of(int socket, const std::string& output) {
  const short events = output.empty() ? POLLIN : static_cast<short>(POLLIN | POLLOUT);
  return {.fd = socket, .events = events, .revents = 0};
}

/// An address and port in the format of /proc/net/tcp (IPv4) and /proc/net/tcp6 (IPv6).
struct TableAddress {
  std::string four;
  std::string six;
};

std::string words_in_hexadecimal(const void* bytes, std::size_t words) {
  std::string text;
  for (std::size_t word = 0; word < words; ++word) {
    std::uint32_t value = 0;
    std::memcpy(&value, static_cast<const char*>(bytes) + sizeof(value) * word, sizeof(value));
    text += fmt::format("{:08X}", value);
  }
  return text;
}

TableAddress table_address(const sockaddr_storage& storage) {
  TableAddress text;
  in6_addr six{};
  const auto port =
      fmt::format(":{:04X}", ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port));
  if (storage.ss_family == AF_INET) {
    const in_addr& four = reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
    six.s6_addr[10] = six.s6_addr[11] = 0xff;
    std::memcpy(&six.s6_addr[12], &four, sizeof(four));
  } else {
    six = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  }
  if (IN6_IS_ADDR_V4MAPPED(&six)) text.four = words_in_hexadecimal(&six.s6_addr[12], 1) + port;
  text.six = words_in_hexadecimal(&six, 4) + port;
  return text;
}

/// Whether the table has an established connection between the two whose socket belongs to a
/// process of this user. A socket that was closed or not yet accepted has no inode, and its user
/// field is meaningless.
bool table_has(const char* table, const std::string& local, const std::string& remote) {
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // header
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string slot, own, other, state, queues, timer, retransmissions;
    unsigned long user = 0;
    unsigned long timeout = 0;
    unsigned long long inode = 0;
    if (!(words >> slot >> own >> other >> state >> queues >> timer >> retransmissions >> user >>
          timeout >> inode))
      continue;
    if (own == local && other == remote && state == "01") return inode != 0 && user == geteuid();
  }
  return false;
}

}  // namespace

bool belongs_to_this_user(int socket) {
  sockaddr_storage own{};
  sockaddr_storage other{};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(socket, reinterpret_cast<sockaddr*>(&other), &other_size) != 0)
    return false;
  const TableAddress here = table_address(own);
  const TableAddress there = table_address(other);
  return (!there.four.empty() && table_has("/proc/net/tcp", there.four, here.four)) ||
         table_has("/proc/net/tcp6", there.six, here.six);
}

bool authenticate(const FileDescriptor& socket, const net::JobSecret& secret,
                  const std::string& purpose, std::chrono::milliseconds limit, std::string& why) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + limit;
  Handshake handshake(secret, Handshake::Role::initiator, purpose);
  std::string output;
  for (;;) {
    const bool is_open = advance_handshake(socket.get(), handshake, output);
    if (handshake.failed()) {
      why = handshake.reason();
      return false;
    }
    if (handshake.succeeded() && output.empty()) break;
    if (!is_open) {
      why = kClosedByPeer;
      return false;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      why = fmt::format("it did not answer within {} ms", limit.count());
      return false;
    }
    pollfd interest = interest_of(socket.get(), output);
    poll(&interest, 1, static_cast<int>(left));
  }
  if (secret.is_secret() || belongs_to_this_user(socket.get())) return true;
  why = kOtherUser;
  return false;
}

PendingConnections::PendingConnections(std::vector<Listener> listeners, net::JobSecret secret,
                                       std::string purpose)
    : listeners_(std::move(listeners)),
      secret_(std::move(secret)),
      purpose_(std::move(purpose)),
      paused_until_(-std::numeric_limits<double>::infinity()) {}

void PendingConnections::add_interests(std::vector<pollfd>& interests, double now) const {
  if (now >= paused_until_ && can_accept(now))
    for (const Listener& listener : listeners_)
      interests.push_back({.fd = listener.descriptor(), .events = POLLIN, .revents = 0});
  for (const Pending& pending : pending_)
    interests.push_back(interest_of(pending.socket.get(), pending.output));
}

// Once the oldest may be replaced, the next event is a new connection. A deadline in the past would
// make every wait return at once.
double PendingConnections::next_deadline(double now) const {
  double next = std::numeric_limits<double>::infinity();
  if (!pending_.empty())
    next = pending_.front().since + (can_accept(now) ? kPatience : kBusyPatience);
  if (std::isfinite(paused_until_)) next = std::min(next, paused_until_);
  return next;
}

std::vector<FileDescriptor> PendingConnections::advance(double now) {
  std::vector<FileDescriptor> authenticated;
  const auto advance_all = [&] {
    std::erase_if(pending_, [&](Pending& pending) { return advance(pending, now, authenticated); });
  };
  advance_all();
  if (now < paused_until_) return authenticated;
  paused_until_ = -std::numeric_limits<double>::infinity();
  accept(now);
  advance_all();  // the first bytes may have arrived
  return authenticated;
}

/// Whether the connection can be removed from the list.
bool PendingConnections::advance(Pending& pending, double now,
                                 std::vector<FileDescriptor>& authenticated) {
  const bool is_open = advance_handshake(pending.socket.get(), pending.handshake, pending.output);
  if (pending.handshake.succeeded() && pending.output.empty() &&
      (secret_.is_secret() || belongs_to_this_user(pending.socket.get()))) {
    authenticated.push_back(std::move(pending.socket));
    return true;
  }
  if (is_open && pending.handshake.wanted() > 0 && now - pending.since <= kPatience) return false;
  ++refused_;
  return true;
}

void PendingConnections::accept(double now) {
  for (const Listener& listener : listeners_) {
    for (std::size_t count = 0; count < kMaxPending && can_accept(now); ++count) {
      FileDescriptor socket = listener.accept();
      if (!socket.is_open() && (errno == ECONNABORTED || errno == EINTR)) continue;
      if (!socket.is_open()) {
        // Without descriptors the listener stays ready, and polling for it would return at once.
        if (!would_block()) paused_until_ = now + kPause;
        break;
      }
      if (pending_.size() == kMaxPending) {
        pending_.erase(pending_.begin());
        ++refused_;
      }
      pending_.push_back({.socket = std::move(socket),
                          .handshake = Handshake(secret_, Handshake::Role::responder, purpose_),
                          .output = {},
                          .since = now});
    }
  }
}

/// Whether another connection may be accepted. At the limit, it replaces the oldest one after
/// kBusyPatience.
bool PendingConnections::can_accept(double now) const {
  return pending_.size() < kMaxPending || now - pending_.front().since >= kBusyPatience;
}

}  // namespace lockstep::inline v0::net
