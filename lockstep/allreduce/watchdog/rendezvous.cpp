#include "lockstep/allreduce/watchdog/rendezvous.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::allreduce {
namespace {

/// A text that is equal for processes with the same loopback interface, and only for these.
std::string network_of_this_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code unknown;
  return boot + std::filesystem::read_symlink("/proc/self/ns/net", unknown).string();
}

}  // namespace

std::vector<std::string> addresses_for_ranks(const Communicator& ranks) {
  const std::string network = network_of_this_process();
  std::string mine = network;
  for (const std::string& address : net::addresses_for_other_hosts()) mine += " " + address;
  const std::vector<std::string> lines = gather_texts(ranks, mine);
  if (ranks.rank() != 0) return {};
  const std::vector<std::string> own = net::host_addresses();
  std::set<std::string>
      others;  // addresses that this host does not have too, unlike those of container bridges
  bool alone = true;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string theirs;
    words >> theirs;
    if (theirs == network) continue;
    alone = false;
    for (std::string address; words >> address;)
      if (std::ranges::find(own, address) == own.end()) others.insert(address);
  }
  if (alone) return {"127.0.0.1"};
  std::set<std::string> ways;
  for (const std::string& other : others)
    if (const std::string way = net::route_to(other).address;
        !way.empty() && !net::is_loopback(way))
      ways.insert(way);
  return {ways.begin(), ways.end()};
}

}  // namespace lockstep::inline v0::allreduce
