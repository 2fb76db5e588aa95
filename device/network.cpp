#include "device/network.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "device/network_interfaces.h"

namespace lockstep::device {
namespace {

constexpr const char* kAnyPort = "9";

/// The address that a datagram to `other` would come from. Connecting such a socket only asks for the route.
std::string own_address(const addrinfo& other) {
  const int socket = ::socket(other.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  std::string own;
  sockaddr_storage storage{};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  if (connect(socket, other.ai_addr, other.ai_addrlen) == 0 && getsockname(socket, address, &size) == 0)
    own = numeric_address(address);
  close(socket);
  return own;
}

std::string interface_of(const std::string& own) {
  for (const InterfaceAddress& one : interface_addresses())
    if (one.address == own) return one.interface;
  return "";
}

}  // namespace

NetworkWay way_to(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), kAnyPort, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  NetworkWay way{.address = own_address(*found)};
  if (!way.address.empty()) way.interface = interface_of(way.address);
  return way;
}

}  // namespace lockstep::device
