#include "lockstep/net/interfaces.h"

#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <span>

#include "lockstep/base/system/file_descriptor.h"

namespace lockstep::inline v0::net {
namespace {

/// Queries the kernel about interfaces by ioctl. Unlike the files in /sys, ioctl uses the network
/// namespace of this process, which may be that of a container.
class InterfaceQuery {
 public:
  int mtu(const char* interface) const {
    ifreq request = about(interface);
    return ::ioctl(socket_.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
  }

  std::int64_t bits_per_second(const char* interface) const {
    constexpr std::int64_t kMegabit = 1'000'000;
    ethtool_cmd settings{};
    settings.cmd = ETHTOOL_GSET;
    ifreq request = about(interface);
    request.ifr_data = reinterpret_cast<char*>(&settings);
    if (::ioctl(socket_.get(), SIOCETHTOOL, &request) != 0) return 0;
    const std::uint32_t speed = ethtool_cmd_speed(&settings);
    return speed == static_cast<std::uint32_t>(SPEED_UNKNOWN) ? 0 : speed * kMegabit;
  }

 private:
  static ifreq about(const char* interface) {
    ifreq request{};
    const std::string name(interface);
    name.copy(request.ifr_name, sizeof(request.ifr_name) - 1);
    return request;
  }

  FileDescriptor socket_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

/// The bytes of an address in network byte order.
std::span<unsigned char> bytes_of(sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    auto* bytes =
        reinterpret_cast<unsigned char*>(&reinterpret_cast<sockaddr_in*>(&address)->sin_addr);
    return {bytes, sizeof(in_addr)};
  }
  return {reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr.s6_addr, sizeof(in6_addr)};
}

sockaddr_storage copy_of(const sockaddr* address) {
  sockaddr_storage copy{};
  std::memcpy(&copy, address,
              address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  return copy;
}

/// "10.0.0.0/24" for 10.0.0.7 and 255.255.255.0; empty without a mask.
std::string network_of(const sockaddr* address, const sockaddr* mask) {
  if (mask == nullptr) return "";
  sockaddr_storage network = copy_of(address);
  sockaddr_storage ones = copy_of(mask);
  ones.ss_family = network.ss_family;  // some interfaces do not set it
  const auto bits = bytes_of(network);
  int prefix = 0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] &= bytes_of(ones)[i];
    prefix += std::popcount(bytes_of(ones)[i]);
  }
  return numeric_address(reinterpret_cast<const sockaddr*>(&network)) + '/' +
         std::to_string(prefix);
}

}  // namespace

std::string numeric_address(const sockaddr* address) {
  if (address->sa_family != AF_INET && address->sa_family != AF_INET6) return "";
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> text{};
  if (getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return "";
  return text.data();
}

std::optional<SocketAddress> parse_address(const std::string& address, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found) != 0)
    return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress parsed{.size = found->ai_addrlen};
  std::memcpy(&parsed.storage, found->ai_addr, found->ai_addrlen);
  return parsed;
}

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string text = numeric_address(entry->ifa_addr);
    if (text.empty() || text.find('%') != std::string::npos) continue;
    all.push_back({.interface = entry->ifa_name,
                   .address = text,
                   .network = network_of(entry->ifa_addr, entry->ifa_netmask),
                   .is_loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  std::stable_partition(all.begin(), all.end(), [](const InterfaceAddress& one) {
    return one.address.find(':') == std::string::npos;
  });
  return all;
}

std::vector<NetworkAddress> network_addresses() {
  const InterfaceQuery query;
  std::vector<NetworkAddress> all;
  for (const InterfaceAddress& one : interface_addresses())
    if (!one.is_loopback)
      all.push_back({.interface = one.interface,
                     .address = one.address,
                     .network = one.network,
                     .mtu = query.mtu(one.interface.c_str()),
                     .bits_per_second = query.bits_per_second(one.interface.c_str())});
  return all;
}

namespace {

constexpr std::uint16_t kAnyPort = 9;

/// The source address of a datagram to `other`. Connecting a datagram socket only looks up the
/// route.
std::string own_address(const SocketAddress& other) {
  const int socket = ::socket(other.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  std::string own;
  sockaddr_storage storage{};
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  if (connect(socket, other.get(), other.size) == 0 && getsockname(socket, address, &size) == 0)
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

NetworkRoute route_to(const std::string& address) {
  const std::optional<SocketAddress> other = parse_address(address, kAnyPort);
  if (!other) return {};
  NetworkRoute way{.address = own_address(*other)};
  if (!way.address.empty()) way.interface = interface_of(way.address);
  return way;
}

}  // namespace lockstep::inline v0::net
