// The HTTP server with slow, endless or invalid clients.
#include "lockstep/net/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/net/interfaces.h"

namespace lockstep::inline v0::net {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A blocking connection to a server on 127.0.0.1.
class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto address = parse_address("127.0.0.1", port);
    if (connect(socket_.get(), address->get(), address->size) != 0)
      throw std::runtime_error("no connection");
  }

  /// Limits how long read_all() waits for bytes.
  void limit_waiting(std::chrono::seconds limit) const {
    const timeval time{.tv_sec = limit.count(), .tv_usec = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  }
  /// Whether the system accepted all bytes.
  bool send(std::string_view bytes) const {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  /// Reads until the server closes.
  std::string read_all() const {
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t got = 0; (got = recv(socket_.get(), piece.data(), piece.size(), 0)) > 0;)
      text.append(piece.data(), static_cast<std::size_t>(got));
    return text;
  }

 private:
  FileDescriptor socket_;
};

std::optional<HttpText> two_paths(std::string_view path) {
  if (path == "/fails") throw std::runtime_error("no text");
  if (path != "/text") return std::nullopt;
  return HttpText{.type = "text/plain", .body = "a 1\nb 2\n"};
}

std::string response_to(std::string_view request) {
  const HttpServer server("127.0.0.1", 0, two_paths);
  const HttpClient client(server.port());
  client.send(request);
  return client.read_all();
}

TEST(HttpServer, SendsTheTextOfAPath) {
  for (const char* request : {"GET /text HTTP/1.1\r\nHost: here\r\n\r\n", "GET /text HTTP/1.0\n\n",
                              "GET /text?name=a HTTP/1.1\r\n\r\n"})
    EXPECT_THAT(response_to(request),
                AllOf(StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                                 "Content-Length: 8\r\nConnection: close\r\n"),
                      EndsWith("\r\n\r\na 1\nb 2\n")))
        << request;
}

TEST(HttpServer, SendsOnlyTheHeaderToHead) {
  EXPECT_THAT(response_to("HEAD /text HTTP/1.1\r\n\r\n"),
              AllOf(HasSubstr("Content-Length: 8\r\n"), EndsWith("\r\n\r\n")));
  for (const char* path : {"/other", "/fails"})
    EXPECT_THAT(response_to(std::string("HEAD ") + path + " HTTP/1.1\r\n\r\n"),
                EndsWith("\r\n\r\n"))
        << path;
}

TEST(HttpServer, RejectsUnknownRequests) {
  EXPECT_THAT(response_to("GET /other HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(response_to("GET /fails HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(response_to("POST /text HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody"),
              AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD\r\n")));
  for (const char* request : {"\r\n\r\n", "GET\r\n\r\n", "GET /text\r\n\r\n",
                              "GET  HTTP/2.0\r\n\r\n", "\x16\x03\x01\x02\n\n"})
    EXPECT_THAT(response_to(request), StartsWith("HTTP/1.1 400 ")) << request;
}

TEST(HttpServer, ReadsARequestInPieces) {
  const HttpServer server("127.0.0.1", 0, two_paths);
  const HttpClient client(server.port());
  for (const char c : std::string("GET /text HTTP/1.1\r\n\r\n"))
    EXPECT_TRUE(client.send(std::string_view(&c, 1)));
  EXPECT_THAT(client.read_all(), EndsWith("a 1\nb 2\n"));
}

TEST(HttpServer, RejectsLongRequests) {
  EXPECT_THAT(response_to("GET /" + std::string(9000, 'x') + " HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(response_to("GET /text HTTP/1.1\r\n" + std::string(20000, 'x')),
              StartsWith("HTTP/1.1 431 "));
}

TEST(HttpServer, ClosesAClientThatNeverStopsSending) {
  const HttpServer server("127.0.0.1", 0, two_paths);
  const HttpClient client(server.port());
  const std::string piece(65536, 'x');
  while (client.send(piece)) {
  }
}

TEST(HttpServer, ClosesAClientThatSendsNothing) {
  const HttpServer server("127.0.0.1", 0, two_paths, {.duration = std::chrono::milliseconds(50)});
  EXPECT_EQ(HttpClient(server.port()).read_all(), "");
}

TEST(HttpServer, ClosesAClientThatDoesNotRead) {
  const std::string body(64 << 20, 'x');
  const HttpServer server(
      "127.0.0.1", 0,
      [&](std::string_view) { return HttpText{.type = "text/plain", .body = body}; },
      {.duration = std::chrono::milliseconds(50)});
  const HttpClient client(server.port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  // Closed for its silence, after the older connection.
  EXPECT_EQ(HttpClient(server.port()).read_all(), "");
  EXPECT_LT(client.read_all().size(), body.size());
}

TEST(HttpServer, ServesWhileOthersHoldConnections) {
  const HttpServer server("127.0.0.1", 0, two_paths,
                          {.connections = 4, .duration = std::chrono::hours(1)});
  std::vector<HttpClient> silent;
  for (int i = 0; i < 6; ++i) silent.emplace_back(server.port());
  const HttpClient client(server.port());
  client.send("GET /text HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_all(), EndsWith("a 1\nb 2\n"));
  EXPECT_EQ(silent.front().read_all(), "") << "the oldest ones were closed";
}

// A scrape has a limit of 10 s. At one connection every 10 ms these would take 20 s.
TEST(HttpServer, AnswersInTimeBehindManyConnections) {
  const HttpServer server("127.0.0.1", 0, two_paths);
  for (int i = 0; i < 2000; ++i) HttpClient(server.port());
  std::vector<HttpClient> silent;
  for (int i = 0; i < 100; ++i) silent.emplace_back(server.port());
  const HttpClient client(server.port());
  client.limit_waiting(std::chrono::seconds(10));
  client.send("GET /text HTTP/1.1\r\n\r\n");
  EXPECT_THAT(client.read_all(), EndsWith("a 1\nb 2\n"));
}

TEST(HttpServer, EndsWithOpenConnections) {
  std::vector<HttpClient> clients;
  {
    const HttpServer server("127.0.0.1", 0, two_paths, {.duration = std::chrono::hours(1)});
    for (int i = 0; i < 3; ++i) clients.emplace_back(server.port());
    clients[1].send("GET /te");
  }
  EXPECT_EQ(clients[1].read_all(), "");
}

TEST(HttpServer, NamesAPortInUse) {
  const HttpServer server("127.0.0.1", 0, two_paths);
  try {
    const HttpServer other("127.0.0.1", server.port(), two_paths);
    FAIL() << "two servers on one port";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(std::to_string(server.port())),
                                    HasSubstr("Address already in use")));
  }
  EXPECT_THROW(HttpServer("192.0.2.1", 0, two_paths), Error) << "no address of this host";
  EXPECT_THROW(HttpServer("here", 0, two_paths), Error);
}

}  // namespace
}  // namespace lockstep::inline v0::net
