// Whether the hosts reach each other on every address that MPI may try.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"

namespace lockstep::apps::doctor {

/// An address of a host.
struct AddressFacts {
  std::string interface = {};
  std::string address = {};
  int mtu = 0;
  std::int64_t bits_per_second = 0;  ///< 0 where the system does not tell

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(AddressFacts, interface, address, mtu, bits_per_second)
};

/// One attempt to reach an address of another host.
struct Attempt {
  int rank = 0;                ///< of the host that was called: its first
  std::string interface = {};  ///< there
  std::string address = {};
  std::string failure = {};  ///< empty where that host answered

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Attempt, rank, interface, address, failure)
};

struct NetworkFacts {
  std::vector<AddressFacts> addresses = {};
  std::vector<Attempt> attempts = {};
  std::int64_t ports = 0;  ///< that the system has for connections that a program opens; 0: it does not tell

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(NetworkFacts, addresses, attempts, ports)
};

/// Collective. The first rank of each host opens a port, and calls those of up to 16 other hosts on all their
/// addresses.
Reports<NetworkFacts> measure_network(Ranks& ranks);

/// `network`: hosts, or some of their addresses, that cannot be reached; packets of different sizes.
Outcome judge_network(const Reports<NetworkFacts>& reports);
/// `ports`: few of them.
Outcome judge_ports(const Reports<NetworkFacts>& reports);

/// Bits a second of the fastest interface by which a rank was reached; 0 where nothing is known.
std::int64_t wire_speed(const Reports<NetworkFacts>& reports, int rank);

}  // namespace lockstep::apps::doctor
