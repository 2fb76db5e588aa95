#include "lockstep/allreduce/watchdog/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace lockstep::allreduce {
namespace {

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

pollfd Connection::interest() const {
  const short events = is_flushed() ? POLLIN : static_cast<short>(POLLIN | POLLOUT);
  return {.fd = socket_.get(), .events = events, .revents = 0};
}

void Connection::send(const Message& message) {
  if (write_failed_ || !is_open()) return;
  outgoing_ += frame(message);
  flush();
}

void Connection::flush() {
  while (!outgoing_.empty() && is_open()) {
    const ssize_t sent = ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_wait()) return;
    if (sent < 0) {
      // The peer's last message may be unread: receive() detects the end of the connection.
      write_failed_ = true;
      outgoing_.clear();
      return;
    }
    outgoing_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<Message> Connection::receive() {
  std::array<char, 65536> piece{};
  std::string over;
  if (is_open()) {
    const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) reader_.add({piece.data(), static_cast<std::size_t>(got)});
    if (got == 0) over = "its connection closed";
    if (got < 0 && !would_wait()) over = "its connection broke: " + std::generic_category().message(errno);
  }
  std::vector<Message> messages;
  while (auto message = reader_.next()) messages.push_back(std::move(*message));
  if (reader_.is_broken()) over = "it sent an invalid message";
  if (!over.empty()) close(std::move(over));
  return messages;
}

void Connection::finish_sending() {
  if (is_open() && is_flushed()) shutdown(socket_.get(), SHUT_WR);
}

void Connection::close(std::string reason) {
  socket_ = net::FileDescriptor();
  outgoing_.clear();
  reason_ = std::move(reason);
}

void send_last_words(std::vector<Connection*> connections, const Message& message, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (Connection* connection : connections) connection->send(message);
  for (;;) {
    std::vector<pollfd> interests;
    for (Connection* connection : connections) {
      connection->flush();
      // May be called repeatedly.
      connection->finish_sending();
      connection->receive();
      if (connection->is_open()) interests.push_back(connection->interest());
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (interests.empty() || left <= 0) return;
    poll(interests.data(), interests.size(), static_cast<int>(left));
  }
}

}  // namespace lockstep::allreduce
