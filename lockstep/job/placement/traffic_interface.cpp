#include "lockstep/job/placement/traffic_interface.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/job/agreement.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::job {
namespace {

/// The addresses of a rank's host.
struct HostAddresses {
  int node = 0;
  std::vector<std::string> addresses = {};

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(HostAddresses, node, addresses)
};

/// Interface names in the MPI configuration; empty if there are none, or if it contains networks
/// ("10.0.0.0/8").
std::string configured_interface() {
  const char* value = std::getenv("OMPI_MCA_btl_tcp_if_include");
  const std::string_view text = value == nullptr ? "" : value;
  return std::string(text.find('/') == std::string_view::npos ? text : "");
}

}  // namespace

std::string traffic_interface(const Session& session) {
  if (session.nodes() == 1) return "";
  const std::vector<std::string> own = net::host_addresses();
  const auto all =
      Agreement(session).gather_values("network addresses", HostAddresses{session.node(), own});
  if (std::string name = configured_interface(); !name.empty()) return name;
  for (const HostAddresses& host : all) {
    if (host.node == session.node()) continue;
    for (const std::string& address : host.addresses) {
      // Container bridges have the same address on every host, which leads to the local bridge.
      if (net::is_loopback(address) || std::ranges::find(own, address) != own.end()) continue;
      if (const net::NetworkRoute way = net::route_to(address); !way.interface.empty())
        return way.interface;
    }
  }
  return "";
}

}  // namespace lockstep::inline v0::job
