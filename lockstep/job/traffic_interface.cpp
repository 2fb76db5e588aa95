#include "lockstep/job/traffic_interface.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/socket.h"

namespace lockstep::job {
namespace {

/// Names of interfaces that MPI was told of; empty where it was told of none, or of networks ("10.0.0.0/8").
std::string told_to_mpi() {
  const char* told = std::getenv("OMPI_MCA_btl_tcp_if_include");
  const std::string_view text = told == nullptr ? "" : told;
  return std::string(text.find('/') == std::string_view::npos ? text : "");
}

}  // namespace

std::string traffic_interface(const Session& session) {
  if (session.nodes() == 1) return "";
  const std::vector<std::string> own = net::host_addresses();
  const std::vector<std::string> all = session.all_gather(dump_json(nlohmann::json({session.node(), own})));
  if (std::string told = told_to_mpi(); !told.empty()) return told;
  for (const std::string& text : all) {
    const nlohmann::json rank = parse_json(text, ErrorCategory::communication, "network addresses");
    if (rank[0] == session.node()) continue;
    for (const std::string address : rank[1]) {
      // Hosts with bridges for containers all give those the same address, which leads to the own one.
      if (net::is_loopback(address) || std::ranges::find(own, address) != own.end()) continue;
      if (const net::NetworkWay way = net::way_to(address); !way.interface.empty()) return way.interface;
    }
  }
  return "";
}

}  // namespace lockstep::job
