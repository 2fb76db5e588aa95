#include "lockstep/net/http_server.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/process.h"

namespace lockstep::inline v0::net {
namespace {

using Clock = std::chrono::steady_clock;

/// The pause between two rounds of the server, each of which reads once from every connection and
/// accepts new ones until they have taken kRoundTime of the thread's processor time.
constexpr int kPauseMilliseconds = 10;
constexpr std::chrono::nanoseconds kRoundTime = std::chrono::milliseconds(1);

/// Processor time of the calling thread.
std::chrono::nanoseconds thread_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Bytes that a client may send after its request. They are read, because closing a connection with
/// unread bytes discards the response on its way.
constexpr std::size_t kMaxDiscarded = 64 << 10;

std::string response(std::string_view status, const HttpText& text, bool has_body,
                     std::string_view header = {}) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n"
      "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}\r\n{}",
      status, text.type, text.body.size(), header,
      has_body ? std::string_view(text.body) : std::string_view());
}

std::string failure(std::string_view status, bool has_body = true, std::string_view header = {}) {
  return response(status,
                  {.type = "text/plain; charset=utf-8", .body = fmt::format("{}\n", status)},
                  has_body, header);
}

/// The response to a request whose first line is `line`.
std::string answer(std::string_view line, const HttpServer::Handler& handler) {
  const std::size_t first = line.find(' ');
  const std::size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first ||
      !line.substr(last + 1).starts_with("HTTP/1."))
    return failure("400 Bad Request");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if (method != "GET" && method != "HEAD")
    return failure("405 Method Not Allowed", true, "Allow: GET, HEAD\r\n");
  const bool has_body = method == "GET";
  try {
    const auto text = handler(target.substr(0, target.find('?')));
    return text ? response("200 OK", *text, has_body) : failure("404 Not Found", has_body);
  } catch (const std::exception&) {
    return failure("500 Internal Server Error", has_body);
  }
}

}  // namespace

/// A connection: reads a request, sends the response, and discards what else arrives.
class HttpServer::Client {
 public:
  Client(FileDescriptor socket, Clock::time_point deadline)
      : socket_(std::move(socket)), deadline_(deadline) {}

  bool is_open() const { return socket_.is_open(); }
  Clock::time_point deadline() const { return deadline_; }
  pollfd interest() const {
    return {.fd = socket_.get(),
            .events = static_cast<short>(outgoing_.empty() ? POLLIN : POLLOUT),
            .revents = 0};
  }

  /// Receives and sends what is possible without waiting.
  void advance(const Handler& handler, std::size_t max_request) {
    if (Clock::now() >= deadline_) return close();
    if (!is_answered_) receive(handler, max_request);
    if (!outgoing_.empty()) send();
    if (is_answered_ && outgoing_.empty() && is_open()) discard();
  }

 private:
  void close() { socket_ = FileDescriptor(); }

  /// The number of bytes received; 0 if there are none yet. Closes the connection at its end.
  std::size_t receive_into(std::array<char, 8192>& piece) {
    const ssize_t got = recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0 || !would_block()) close();
    return 0;
  }

  void receive(const Handler& handler, std::size_t max_request) {
    std::array<char, 8192> piece;
    request_.append(piece.data(), receive_into(piece));
    // A header ends with an empty line.
    std::size_t end = request_.find("\n\r\n");
    if (end == std::string::npos) end = request_.find("\n\n");
    if (std::min(end, request_.size()) > max_request) {
      respond(failure("431 Request Header Fields Too Large"));
    } else if (end != std::string::npos) {
      std::string_view line = std::string_view(request_).substr(0, request_.find('\n'));
      if (line.ends_with('\r')) line.remove_suffix(1);
      respond(answer(line, handler));
    }
  }

  void respond(std::string text) {
    is_answered_ = true;
    outgoing_ = std::move(text);
    request_ = {};
  }

  void send() {
    while (sent_ < outgoing_.size()) {
      const ssize_t sent = ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && would_block()) return;
      if (sent < 0) return close();
      sent_ += static_cast<std::size_t>(sent);
    }
    outgoing_.clear();
    shutdown(socket_.get(), SHUT_WR);
  }

  void discard() {
    std::array<char, 8192> piece;
    discarded_ += receive_into(piece);
    if (discarded_ > kMaxDiscarded) close();
  }

  FileDescriptor socket_;
  Clock::time_point deadline_;
  std::string request_;
  bool is_answered_ = false;
  std::string outgoing_;
  std::size_t sent_ = 0;  // bytes of outgoing_ that the system has accepted
  std::size_t discarded_ = 0;
};

HttpServer::HttpServer(const std::string& address, std::uint16_t port, Handler handler,
                       const HttpLimits& limits)
    : listener_(address, port),
      handler_(std::move(handler)),
      limits_(limits),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_.is_open())
    throw Error(ErrorCategory::communication, "network", "expected an event for the HTTP server",
                std::generic_category().message(errno));
  thread_ = start_quiet_thread("the HTTP server", [this] { serve(); });
}

HttpServer::~HttpServer() {
  const std::uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

/// Accepts and advances new connections. False after a failure, such as too many open files.
bool HttpServer::accept_waiting(std::vector<Client>& clients) const {
  const auto end = thread_time() + kRoundTime;
  do {
    FileDescriptor socket = listener_.accept();
    if (!socket.is_open() && errno == ECONNABORTED) continue;
    if (!socket.is_open()) return would_block();
    if (clients.size() >= limits_.connections) clients.erase(clients.begin());
    clients.emplace_back(std::move(socket), Clock::now() + limits_.duration);
    clients.back().advance(handler_, limits_.request);  // before others take its place
  } while (thread_time() < end);
  return true;
}

void HttpServer::serve() noexcept {
  std::vector<Client> clients;  // oldest first
  bool can_accept = true;       // false for a round after a failure, such as too many open files
  for (;;) {
    std::vector<pollfd> interests = {
        {.fd = stop_.get(), .events = POLLIN, .revents = 0},
        {.fd = can_accept ? listener_.descriptor() : -1, .events = POLLIN, .revents = 0}};
    for (const Client& client : clients) interests.push_back(client.interest());
    int timeout = can_accept ? -1 : 1000;
    if (!clients.empty()) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(clients.front().deadline() - Clock::now());
      timeout = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1000));
    }
    poll(interests.data(), interests.size(), timeout);
    if (interests[0].revents != 0) return;
    for (Client& client : clients) client.advance(handler_, limits_.request);
    can_accept = interests[1].revents == 0 || accept_waiting(clients);
    std::erase_if(clients, [](const Client& client) { return !client.is_open(); });
    poll(interests.data(), 1, kPauseMilliseconds);
    if (interests[0].revents != 0) return;
  }
}

}  // namespace lockstep::inline v0::net
