#include "apps/lockstep/launch/link.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace lockstep::apps::launch {
namespace {

constexpr int kIdleSeconds = 10;  // before the other end is asked whether it is there
constexpr int kAskSeconds = 5;
constexpr int kQuestions = 4;
constexpr int kUnansweredMilliseconds = 30000;
constexpr std::string_view kMappedPrefix = "::ffff:";  // of an IPv4 address on an IPv6 socket

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

void set(int socket, int level, int option, int value) { setsockopt(socket, level, option, &value, sizeof(value)); }

}  // namespace

Link::Link(allreduce::FileDescriptor socket) : socket_(std::move(socket)) {
  set(socket_.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket_.get(), IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(socket_.get(), IPPROTO_TCP, TCP_KEEPINTVL, kAskSeconds);
  set(socket_.get(), IPPROTO_TCP, TCP_KEEPCNT, kQuestions);
  set(socket_.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMilliseconds);
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
  while (!outgoing_.empty()) {
    const ssize_t sent = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_wait()) return;
    if (sent < 0) {
      outgoing_.clear();  // reading tells what became of the connection, after the last words of the other end
      return;
    }
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<Frame> Link::receive() {
  std::vector<Frame> frames;
  if (!is_open()) return frames;
  send_more();
  std::array<char, 65536> piece{};
  ssize_t got = 0;
  while ((got = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT)) > 0)
    reader_.add({piece.data(), static_cast<std::size_t>(got)});
  const bool over = got == 0 || !would_wait();
  const int error = errno;
  while (auto frame = reader_.next()) frames.push_back(std::move(*frame));
  if (reader_.is_broken())
    close("it speaks otherwise");
  else if (over)
    close(got == 0 ? "its connection closed" : "its connection broke: " + std::generic_category().message(error));
  return frames;
}

void Link::close(const std::string& reason) {
  socket_ = allreduce::FileDescriptor();
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
