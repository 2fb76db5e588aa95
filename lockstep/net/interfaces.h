// Addresses and network interfaces of this host.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::inline v0::net {

/// "10.0.0.1", "fd00::1"; empty if `address` is neither IPv4 nor IPv6. A link-local address has its
/// interface appended: "fe80::1%eth0".
std::string numeric_address(const sockaddr* address);

/// An address and a port as arguments of system calls.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

/// The reverse of numeric_address(); nullopt if the text is not numeric.
std::optional<SocketAddress> parse_address(const std::string& address, std::uint16_t port);

/// An address of an active interface.
struct InterfaceAddress {
  std::string interface = {};  ///< "eth0", "lo"
  std::string address = {};    ///< numeric
  std::string network = {};    ///< "10.0.0.0/24"
  bool is_loopback = false;
};

/// Addresses of this host except IPv6 link-local ones (fe80::…); IPv4 first.
std::vector<InterfaceAddress> interface_addresses();

/// An address at which other hosts may reach this one.
struct NetworkAddress {
  std::string interface = {};        ///< "eth0"
  std::string address = {};          ///< numeric: "10.0.0.1", "fd00::1"
  std::string network = {};          ///< "10.0.0.0/24"
  int mtu = 0;                       ///< largest packet in bytes; 0 if unknown
  std::int64_t bits_per_second = 0;  ///< link speed reported by the interface; 0 if unknown
};

/// interface_addresses() without loopback, with the properties of their interfaces.
std::vector<NetworkAddress> network_addresses();

/// The local end of a route to another host.
struct NetworkRoute {
  std::string interface = {};  ///< "eth0"; empty if there is no route
  std::string address = {};    ///< address of this host on it
};

/// The route of packets from this host to the numeric `address`, from the system's routing table.
/// Sends nothing.
NetworkRoute route_to(const std::string& address);

}  // namespace lockstep::inline v0::net
