// A small HTTP server for short texts that monitoring systems read.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::net {

/// The body of a response with status 200.
struct HttpText {
  std::string type;  ///< media type: "text/plain; charset=utf-8"
  std::string body;
};

/// Limits on the resources that clients can occupy.
struct HttpLimits {
  /// Open connections. The oldest one is closed in favor of another.
  std::size_t connections = 16;
  std::size_t request = 8192;  ///< bytes of the request line and the header
  /// From the beginning of a connection to its end.
  std::chrono::milliseconds duration{5000};
};

/// Answers GET and HEAD over HTTP/1.1, one request per connection, on a separate thread.
///
/// Clients are not trusted. A connection that exceeds the limits is closed. The thread accepts all
/// waiting connections and answers a request that has arrived at once, so that connections without
/// requests do not delay it. It pauses between rounds, so that serving uses at most a tenth of a
/// processor. There is no encryption and no authentication: anyone who can reach the address can
/// read the texts.
class HttpServer {
 public:
  /// The text of a path without its query, such as "/metrics"; nullopt if there is none (status
  /// 404). Called on the thread of the server; an exception is status 500.
  using Handler = std::function<std::optional<HttpText>(std::string_view path)>;

  /// Listens on the numeric `address`. `port` 0: one that the system chooses. Throws Error
  /// (communication) if it cannot, for example for a port in use.
  HttpServer(const std::string& address, std::uint16_t port, Handler handler,
             const HttpLimits& limits = {});
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();  ///< closes all connections

  std::uint16_t port() const { return listener_.port(); }

 private:
  class Client;

  void serve() noexcept;
  bool accept_waiting(std::vector<Client>& clients) const;

  Listener listener_;
  Handler handler_;
  HttpLimits limits_;
  FileDescriptor stop_;  // readable once the server must stop
  std::thread thread_;   // last: it uses the others
};

}  // namespace lockstep::inline v0::net
