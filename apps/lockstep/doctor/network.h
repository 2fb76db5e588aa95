// Check: the hosts reach each other on every address that MPI may use.
#pragma once

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "apps/lockstep/doctor/ranks.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/socket.h"

namespace lockstep::inline v0::net {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NetworkAddress, interface, address, network, mtu,
                                                bits_per_second)
}  // namespace lockstep::inline v0::net

namespace lockstep::inline v0::apps::doctor {

/// One attempt to reach an address of another host.
struct Attempt {
  int rank = 0;                ///< first rank of the other host
  std::string interface = {};  ///< interface of the other host; empty if it has no port or address
  std::string address = {};    ///< address of that interface
  std::string network = {};    ///< network of that address: "10.0.0.0/24"
  std::string failure = {};    ///< empty if the host answered

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(Attempt, rank, interface, address, network, failure)
};

struct NetworkFacts {
  std::vector<net::NetworkAddress> addresses = {};
  std::vector<Attempt> attempts = {};
  std::int64_t ports = 0;  ///< number of ephemeral ports; 0: unknown

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(NetworkFacts, addresses, attempts, ports)
};

/// A server that sends its rank to every client. It listens at `addresses` only.
class Greeter {
 public:
  Greeter(int rank, const std::vector<net::NetworkAddress>& addresses);

  /// The port of each address; 0 if it could not open one.
  const std::vector<int>& ports() const { return ports_; }

 private:
  void greet(const std::stop_token& stop, const std::string& text) const;

  std::vector<net::Listener> listeners_;
  std::vector<int> ports_;
  std::jthread thread_;  // last: its destructor joins before the listeners are closed
};

/// Collective. The first rank of each host listens at a port of each of its addresses, and connects
/// to those of up to 16 other hosts at all their addresses.
Reports<NetworkFacts> measure_network(Ranks& ranks);

/// `network`: hosts or addresses that cannot be reached; different MTUs.
Outcome judge_network(const Reports<NetworkFacts>& reports);
/// `ports`: too few ephemeral ports.
Outcome judge_ports(const Reports<NetworkFacts>& reports);

/// By rank, the speed in bit/s of the fastest interface at which it was reached, if known.
std::map<int, std::int64_t> wire_speeds(const Reports<NetworkFacts>& reports);

}  // namespace lockstep::inline v0::apps::doctor
