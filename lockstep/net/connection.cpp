#include "lockstep/net/connection.h"

#include <fmt/format.h>

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::net {
namespace {

constexpr std::size_t kHeader = 5;

}  // namespace

std::string encode(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kHeader + frame.body.size());
  for (int shift = 0; shift < 32; shift += 8)
    bytes.push_back(static_cast<char>((frame.body.size() >> shift) & 0xFFU));
  bytes.push_back(static_cast<char>(frame.kind_));
  return bytes += frame.body;
}

std::optional<Frame> FrameReader::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (!broken_ && rest.size() >= kHeader) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i)
      length |= static_cast<std::size_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
    const char kind = rest[4];
    broken_ = length > limits_.body || limits_.kinds.find(kind) == std::string_view::npos;
    if (!broken_ && rest.size() >= kHeader + length) {
      begin_ += kHeader + length;
      enum class Any : std::uint8_t {};
      return Frame(static_cast<Any>(kind), std::string(rest.substr(kHeader, length)));
    }
  }
  // Erases once after all complete frames, not once per frame.
  bytes_.erase(0, begin_);
  begin_ = 0;
  return std::nullopt;
}

Connection::Connection(FileDescriptor socket, const FrameLimits& limits)
    : socket_(std::move(socket)), limits_(limits), reader_(limits) {}

pollfd Connection::interest() const {
  const short events = is_flushed() ? POLLIN : static_cast<short>(POLLIN | POLLOUT);
  return {.fd = socket_.get(), .events = events, .revents = 0};
}

void Connection::send(const Frame& frame) {
  LOCKSTEP_CHECK_OP(frame.body.size(), <=, limits_.body);
  if (write_failed_ || !is_open()) return;
  outgoing_ += encode(frame);
  flush();
  if (outgoing_.size() - sent_ > limits_.queued) close("it does not read what is sent to it");
}

void Connection::flush() {
  while (sent_ < outgoing_.size()) {
    const ssize_t sent = ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && would_block()) {
      if (sent_ <= outgoing_.size() / 2) return;
      outgoing_.erase(0, sent_);
      sent_ = 0;
      return;
    }
    if (sent < 0) {
      // The peer's last frames may be unread: receive() detects the end of the connection.
      write_failed_ = true;
      break;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  outgoing_.clear();
  sent_ = 0;
}

std::vector<Frame> Connection::receive() {
  std::vector<Frame> frames;
  if (!is_open()) return frames;
  flush();
  std::array<char, 65536> piece{};
  std::string over;
  const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got == 0) over = "its connection closed";
  if (got < 0 && !would_block())
    over = "its connection broke: " + std::generic_category().message(errno);
  if (got > 0) reader_.add({piece.data(), static_cast<std::size_t>(got)});
  while (auto frame = reader_.next()) frames.push_back(std::move(*frame));
  if (reader_.is_broken()) over = "it sent an invalid message";
  if (!over.empty()) close(std::move(over));
  return frames;
}

void Connection::finish_sending() {
  if (is_open() && is_flushed()) shutdown(socket_.get(), SHUT_WR);
}

void Connection::close(std::string reason) {
  socket_ = FileDescriptor();
  outgoing_.clear();
  sent_ = 0;
  reason_ = std::move(reason);
}

void send_last_frame(const std::vector<FrameChannel*>& channels, const Frame& frame,
                     std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (FrameChannel* channel : channels) channel->send(frame);
  for (;;) {
    std::vector<pollfd> interests;
    for (FrameChannel* channel : channels) {
      channel->receive();
      channel->finish_sending();
      if (channel->is_open()) interests.push_back(channel->interest());
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    if (interests.empty() || left <= 0) return;
    poll(interests.data(), interests.size(), static_cast<int>(left));
  }
}

}  // namespace lockstep::inline v0::net
