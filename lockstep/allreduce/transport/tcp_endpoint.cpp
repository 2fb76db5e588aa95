#include "lockstep/allreduce/transport/tcp_endpoint.h"

#include <fmt/format.h>

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::size_t kParts = 16;  // in one system call: a message and those after it
constexpr std::size_t kReadAhead = 4096;
// Bytes that one process may move before the others have their turn, and before this one reads what
// it has been sent: so many stay in the caches.
constexpr std::size_t kShare = std::size_t{64} << 10;
// The system's buffers between processes of one host, limited for the same reason: Linux lets them
// grow to megabytes, which on a network cover its latency, and here take 16 MiB from 12 to 17 ms.
constexpr int kLocalBuffer = 64 << 10;

class TcpEndpoint final : public Endpoint {
 public:
  TcpEndpoint(int rank, std::vector<int> nodes, std::uint64_t job,
              std::vector<net::FileDescriptor> connections)
      : Endpoint(rank, std::move(nodes), job),
        connections_(std::move(connections)),
        ahead_(connections_.size()),
        events_(epoll_create1(EPOLL_CLOEXEC)),
        is_paused_(connections_.size()) {
    LOCKSTEP_CHECK_OP(connections_.size(), ==, static_cast<std::size_t>(size()));
    for (int other = 0; other < size(); ++other) {
      if (other == rank) continue;
      if (node_of(other) == node_of(rank))
        for (const int buffer : {SO_SNDBUF, SO_RCVBUF})
          setsockopt(descriptor(other), SOL_SOCKET, buffer, &kLocalBuffer, sizeof(kLocalBuffer));
      epoll_event event{.events = EPOLLIN, .data = {.u32 = static_cast<std::uint32_t>(other)}};
      if (epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor(other), &event) != 0)
        throw Error(ErrorCategory::communication, "transport", "expected open connections",
                    system_text(errno));
    }
  }

  bool sleep(std::chrono::nanoseconds longest) override {
    awaited_ = {{.fd = events_.get(), .events = POLLIN, .revents = 0}};
    for (int other = 0; other < size(); ++other)
      if (!outgoing(other).is_empty())
        awaited_.push_back({.fd = descriptor(other), .events = POLLOUT, .revents = 0});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(longest);
    const timespec time = {seconds.count(), (longest - seconds).count()};
    ::ppoll(awaited_.data(), awaited_.size(), &time, nullptr);
    return true;
  }

 protected:
  void move(int rank) override {
    if (rank == this->rank() || is_lost(rank)) return;
    try {
      write_to(rank);
      read_from(rank);
    } catch (const Error& error) {
      lose(rank, error.message());
    }
  }

  void move_all() override {
    std::array<epoll_event, 64> ready{};
    const int count = epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
    for (int i = 0; i < count; ++i)
      move(static_cast<int>(ready[static_cast<std::size_t>(i)].data.u32));
    for (int other = 0; other < size(); ++other)
      if (!outgoing(other).is_empty()) move(other);
  }

 private:
  static std::string system_text(int error) { return std::system_category().message(error); }

  int descriptor(int rank) const { return connections_[static_cast<std::size_t>(rank)].get(); }

  [[noreturn]] static void refuse(int rank, const std::string& found) {
    throw Error(ErrorCategory::communication, "transport",
                fmt::format("expected rank {} to stay connected", rank), found);
  }

  static std::size_t size_of(std::span<const iovec> vectors) {
    std::size_t bytes = 0;
    for (const iovec& one : vectors) bytes += one.iov_len;
    return bytes;
  }

  void write_to(int rank) {
    for (std::size_t moved = 0; moved < kShare && !outgoing(rank).is_empty();) {
      std::array<iovec, kParts> vectors{};
      std::size_t parts = 0;
      for (const std::span<const std::byte> part : outgoing(rank).next(kParts))
        vectors[parts++] = {const_cast<std::byte*>(part.data()), part.size()};
      msghdr message{};
      message.msg_iov = vectors.data();
      message.msg_iovlen = parts;
      const ssize_t bytes = sendmsg(descriptor(rank), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0 && net::would_block()) return;
      if (bytes < 0) refuse(rank, fmt::format("its connection broke: {}", system_text(errno)));
      sent(rank, static_cast<std::size_t>(bytes));
      moved += static_cast<std::size_t>(bytes);
      if (static_cast<std::size_t>(bytes) < size_of(vectors)) return;  // the buffer is full
    }
  }

  // Short parts are read ahead, many in one system call; long ones go to their places.
  void read_from(int rank) {
    ReadAhead& ahead = ahead_[static_cast<std::size_t>(rank)];
    bool is_drained = false;  // the socket has no more
    // What was read ahead is no event: it must not stay.
    for (std::size_t moved = 0; moved < kShare || ahead.begin < ahead.end;) {
      const std::span<std::byte> into = incoming(rank).next();
      if (into.empty()) return watch(rank, false);
      watch(rank, true);
      if (const std::size_t bytes = std::min(into.size(), ahead.end - ahead.begin); bytes > 0) {
        std::memcpy(into.data(), ahead.bytes.data() + ahead.begin, bytes);
        ahead.begin += bytes;
        incoming(rank).received(bytes);
      } else if (is_drained) {
        return;
      } else if (into.size() < ahead.bytes.size()) {
        ahead.begin = 0;
        ahead.end = read(rank, ahead.bytes);
        is_drained = ahead.end < ahead.bytes.size();
        moved += ahead.end;
      } else {
        const std::size_t bytes_read = read(rank, into);
        is_drained = bytes_read < into.size();
        incoming(rank).received(bytes_read);
        moved += bytes_read;
      }
    }
  }

  // 0: nothing is there.
  std::size_t read(int rank, std::span<std::byte> into) {
    for (;;) {
      const ssize_t bytes = recv(descriptor(rank), into.data(), into.size(), MSG_DONTWAIT);
      if (bytes > 0) return static_cast<std::size_t>(bytes);
      if (bytes == 0) refuse(rank, "its connection ended");
      if (net::would_block()) return 0;
      if (errno != EINTR) refuse(rank, fmt::format("its connection broke: {}", system_text(errno)));
    }
  }

  // A stream whose next message has no receive is not waited for: it would be ready all the time.
  void watch(int rank, bool on) {
    if (is_paused_[static_cast<std::size_t>(rank)] == !on) return;
    is_paused_[static_cast<std::size_t>(rank)] = !on;
    epoll_event event{.events = on ? EPOLLIN : 0U,
                      .data = {.u32 = static_cast<std::uint32_t>(rank)}};
    epoll_ctl(events_.get(), EPOLL_CTL_MOD, descriptor(rank), &event);
  }

  struct ReadAhead {
    std::vector<std::byte> bytes = std::vector<std::byte>(kReadAhead);
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  std::vector<net::FileDescriptor> connections_;  // by rank
  std::vector<ReadAhead> ahead_;                  // by rank
  net::FileDescriptor events_;                    // epoll
  std::vector<pollfd> awaited_;                   // for sleep()
  std::vector<bool> is_paused_;
};

}  // namespace

std::shared_ptr<Endpoint> make_tcp_endpoint(int rank, std::vector<int> nodes, std::uint64_t job,
                                            std::vector<net::FileDescriptor> connections) {
  return std::make_shared<TcpEndpoint>(rank, std::move(nodes), job, std::move(connections));
}

}  // namespace lockstep::inline v0::allreduce
