// The addresses of this host, and the network interfaces that have them.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::net {

/// "10.0.0.1", "fd00::1"; empty for what is no address of the internet. One that means something on one link alone has
/// that link's interface behind it: "fe80::1%eth0".
std::string numeric_address(const sockaddr* address);

/// An address of an interface that is up.
struct InterfaceAddress {
  std::string interface = {};  ///< "eth0", "lo"
  std::string address = {};    ///< numeric
  std::string network = {};    ///< of the address: "10.0.0.0/24"
  bool is_loopback = false;
};

/// Those of this host, but for those that mean something on one link alone (fe80::…); IPv4 first.
std::vector<InterfaceAddress> interface_addresses();

/// An address by which other hosts may reach this one.
struct NetworkAddress {
  std::string interface = {};        ///< "eth0"
  std::string address = {};          ///< numeric: "10.0.0.1", "fd00::1"
  std::string network = {};          ///< "10.0.0.0/24"
  int mtu = 0;                       ///< bytes of the largest packet; 0 where the system does not tell
  std::int64_t bits_per_second = 0;  ///< that the interface says it carries; 0 where it does not tell
};

/// interface_addresses() but for loopback, with what their interfaces are.
std::vector<NetworkAddress> network_addresses();

// Which of a host's network interfaces lead where.

/// One end of a way to another host.
struct NetworkWay {
  std::string interface = {};  ///< "eth0"; empty where there is no way
  std::string address = {};    ///< of this host on it
};

/// How packets from this host to the numeric `address` would leave, by the system's table of routes. Sends nothing.
NetworkWay way_to(const std::string& address);

}  // namespace lockstep::net
