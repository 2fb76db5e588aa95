#include "lockstep/allreduce/watchdog/rendezvous.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/net/interfaces.h"
#include "lockstep/net/socket.h"

namespace lockstep::allreduce {
namespace {

std::string broadcast(MPI_Comm ranks, std::string text, int root) {
  auto size = static_cast<int>(text.size());
  MPI_Bcast(&size, 1, MPI_INT, root, ranks);
  text.resize(static_cast<std::size_t>(size));
  MPI_Bcast(text.data(), size, MPI_CHAR, root, ranks);
  return text;
}

/// Returns every rank's line on rank 0; empty on other ranks.
std::vector<std::string> gather(MPI_Comm ranks, const std::string& line) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size);
  const auto length = static_cast<int>(line.size());
  std::vector<int> lengths(static_cast<std::size_t>(size));
  MPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, ranks);
  std::vector<int> begins;
  int total = 0;
  for (const int one : lengths) {
    begins.push_back(total);
    total += one;
  }
  std::string all(static_cast<std::size_t>(total), '\0');
  MPI_Gatherv(line.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR, 0, ranks);
  std::vector<std::string> lines;
  if (rank != 0) return lines;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    lines.push_back(all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
  return lines;
}

/// A text that is equal for processes with the same loopback interface, and only for these.
std::string network_of_this_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code unknown;
  return boot + std::filesystem::read_symlink("/proc/self/ns/net", unknown).string();
}

}  // namespace

std::vector<std::string> addresses_for_ranks(MPI_Comm ranks) {
  std::string mine = network_of_this_process();
  const std::vector<std::string> own = net::host_addresses();
  for (const std::string& address : own)
    if (!net::is_loopback(address)) mine += " " + address;
  const std::vector<std::string> lines = gather(ranks, mine);
  std::set<std::string> others;  // addresses that this host does not have too, unlike those of container bridges
  bool alone = true;
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::string network;
    words >> network;
    if (network == network_of_this_process()) continue;
    alone = false;
    for (std::string address; words >> address;)
      if (std::ranges::find(own, address) == own.end()) others.insert(address);
  }
  if (lines.empty()) return {};
  if (alone) return {"127.0.0.1"};
  std::set<std::string> ways;
  for (const std::string& other : others)
    if (const std::string way = net::way_to(other).address; !way.empty() && !net::is_loopback(way)) ways.insert(way);
  return {ways.begin(), ways.end()};
}

std::string share_of_rank_zero(MPI_Comm ranks, std::string text) { return broadcast(ranks, std::move(text), 0); }

}  // namespace lockstep::allreduce
