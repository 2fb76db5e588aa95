#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <stdexcept>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::net {

/// A port of 127.0.0.2 that answers no connection: its backlog of one is full.
class Silence {
 public:
  Silence() {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    inet_pton(AF_INET, "127.0.0.2", &place.sin_addr);
    auto* address = reinterpret_cast<sockaddr*>(&place);
    socklen_t size = sizeof(place);
    if (bind(listener_.get(), address, size) != 0 || listen(listener_.get(), 0) != 0 ||
        getsockname(listener_.get(), address, &size) != 0 ||
        connect(client_.get(), address, size) != 0)
      throw std::runtime_error("no port of 127.0.0.2");
    port_ = ntohs(place.sin_port);
  }
  std::uint16_t port() const { return port_; }

 private:
  FileDescriptor listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  FileDescriptor client_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
};

}  // namespace lockstep::inline v0::net
