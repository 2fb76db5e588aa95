// The addresses of this host, and the network interfaces that have them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::device {

struct NetworkAddress {
  std::string interface;             ///< "eth0"
  std::string address;               ///< numeric: "10.0.0.1", "fd00::1"
  int mtu = 0;                       ///< bytes of the largest packet; 0 where the system does not tell
  std::int64_t bits_per_second = 0;  ///< that the interface says it carries; 0 where it does not tell
};

/// Of all interfaces that are up, but for loopback and for addresses that mean something on one link alone (fe80::…);
/// IPv4 first.
std::vector<NetworkAddress> network_addresses();

}  // namespace lockstep::device
