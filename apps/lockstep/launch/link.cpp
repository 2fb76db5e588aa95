#include "apps/lockstep/launch/link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace lockstep::apps::launch {
namespace {

constexpr std::size_t kHeader = 5;
constexpr std::size_t kLongestText = 4 << 20;  // the addresses of ten thousand hosts
constexpr std::string_view kKinds = "AWRPQCXOETZSL";

}  // namespace

std::string encode(const Frame& frame) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((frame.text.size() >> shift) & 0xFFU));
  bytes.push_back(static_cast<char>(frame.kind));
  return bytes + frame.text;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (!broken_ && rest.size() >= kHeader) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length |= static_cast<std::size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
    const char kind = rest[4];
    broken_ = length > kLongestText || kKinds.find(kind) == std::string_view::npos;
    if (!broken_ && rest.size() >= kHeader + length) {
      Frame frame{.kind = static_cast<FrameKind>(kind), .text = std::string(rest.substr(kHeader, length))};
      begin_ += kHeader + length;
      return frame;
    }
  }
  // Erase once after all complete frames, not once per frame.
  bytes_.erase(0, begin_);
  begin_ = 0;
  return std::nullopt;
}

namespace {

constexpr int kQuestions = 6;                          // TCP keep-alive probes within the stall timeout
constexpr std::int64_t kMaxAskSeconds = 32767;         // limit of the system
constexpr std::string_view kMappedPrefix = "::ffff:";  // of an IPv4 address on an IPv6 socket

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void set(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof(value)); }

}  // namespace

Link::Link(net::FileDescriptor socket, std::chrono::seconds stall_timeout) : socket_(std::move(socket)) {
  const auto ask = static_cast<int>(std::clamp<std::int64_t>(stall_timeout.count() / kQuestions, 1, kMaxAskSeconds));
  set(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, ask);
  set(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, ask);
  set(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
  // The timeout for unacknowledged data and for keep-alive probes.
  const auto limit = std::clamp<std::int64_t>(std::chrono::milliseconds(stall_timeout).count(), 1000, INT32_MAX);
  set(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(limit));
}

pollfd Link::interest() const {
  const short events = outgoing_.empty() ? POLLIN : static_cast<short>(POLLIN | POLLOUT);
  return {.fd = socket_.get(), .events = events, .revents = 0};
}

void Link::send(const Frame& frame) {
  if (!is_open()) return;
  outgoing_ += encode(frame);
  send_more();
}

void Link::send_more() {
  while (sent_ < outgoing_.size()) {
    const ssize_t sent =
        ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_wait()) return;
    if (sent < 0) break;  // receive() reports the error, after the peer's last frames
    sent_ += static_cast<std::size_t>(sent);
  }
  outgoing_.clear();
  sent_ = 0;
}

std::vector<Frame> Link::receive() {
  std::vector<Frame> frames;
  if (!is_open()) return frames;
  send_more();
  std::array<char, 65536> piece{};
  const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  const int error = errno;
  const bool over = got == 0 || (got < 0 && !would_wait());
  if (got > 0) reader_.add({piece.data(), static_cast<std::size_t>(got)});
  while (auto frame = reader_.next()) frames.push_back(std::move(*frame));
  if (reader_.is_broken())
    close("it sent an invalid message");
  else if (over)
    close(got == 0 ? "its connection closed" : "its connection broke: " + std::generic_category().message(error));
  return frames;
}

void Link::close(const std::string& reason) {
  socket_ = net::FileDescriptor();
  reason_ = reason;
}

std::string Link::peer() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  std::array<char, NI_MAXHOST> text{};
  const auto* address = reinterpret_cast<const sockaddr*>(&storage);
  if (getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0 ||
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  const std::string whole = text.data();
  return whole.starts_with(kMappedPrefix) ? whole.substr(kMappedPrefix.size()) : whole;
}

}  // namespace lockstep::apps::launch
