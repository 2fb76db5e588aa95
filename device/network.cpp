#include "device/network.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>

namespace lockstep::device {
namespace {

constexpr const char* kAnyPort = "9";

std::string numeric(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  return text.data();
}

/// The address that a datagram to `other` would come from. Connecting such a socket only asks for the route.
std::string own_address(const addrinfo& other) {
  const int socket = ::socket(other.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  std::string own;
  sockaddr_storage storage{};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  if (connect(socket, other.ai_addr, other.ai_addrlen) == 0 && getsockname(socket, address, &size) == 0)
    own = numeric(address);
  close(socket);
  return own;
}

std::string interface_of(const std::string& own) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    if ((family == AF_INET || family == AF_INET6) && numeric(entry->ifa_addr) == own) return entry->ifa_name;
  }
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
