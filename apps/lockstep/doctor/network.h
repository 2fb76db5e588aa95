// Whether the hosts reach each other on every address that MPI may try.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"
#include "lockstep/net/interfaces.h"

namespace lockstep::net {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NetworkAddress, interface, address, network, mtu, bits_per_second)
}  // namespace lockstep::net

namespace lockstep::apps::doctor {

/// One attempt to reach an address of another host.
struct Attempt {
  int rank = 0;                ///< of the host that was called: its first
  std::string interface = {};  ///< there; empty where nothing could be called
  std::string address = {};    ///< of that interface
  std::string network = {};    ///< of that address: "10.0.0.0/24"
  std::string failure = {};    ///< empty where that host answered

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(Attempt, rank, interface, address, network, failure)
};

struct NetworkFacts {
  std::vector<net::NetworkAddress> addresses = {};
  std::vector<Attempt> attempts = {};
  std::int64_t ports = 0;  ///< that the system has for connections that a program opens; 0: it does not tell

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(NetworkFacts, addresses, attempts, ports)
};

/// Collective. The first rank of each host opens a port, and calls those of up to 16 other hosts on all their
/// addresses.
Reports<NetworkFacts> measure_network(Ranks& ranks);

/// `network`: hosts, or some of their addresses, that cannot be reached; packets of different sizes.
Outcome judge_network(const Reports<NetworkFacts>& reports);
/// `ports`: few of them.
Outcome judge_ports(const Reports<NetworkFacts>& reports);

/// By rank, bits a second of the fastest interface by which it was reached, where one tells.
std::map<int, std::int64_t> wire_speeds(const Reports<NetworkFacts>& reports);

}  // namespace lockstep::apps::doctor
