// Whether hosts reach each other, tried out before mpirun would wait for those that do not.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps::launch {

/// Another host, with a port at which it accepts connections.
struct Target {
  std::string host = {};
  std::vector<std::string> addresses = {};  ///< numeric; one that answers is enough
  std::uint16_t port = 0;

  bool operator==(const Target&) const = default;
};

std::string to_text(const std::vector<Target>& targets);
/// Throws Error (communication) for what is no such list.
std::vector<Target> parse_targets(const std::string& text);

/// Raises this process's limit of open files to what a job of `tasks` may take, as far as the system lets it: for each
/// task its connection, that of an agent of mpirun, and attempts at all addresses of its host.
void allow_connections(int tasks);

/// Tries to connect to all of them at once. Returns, for each host of which no address has answered within `limit`,
/// which it is, and why not by the address that tells most: "b at 10.0.0.2 by eth0: Connection refused".
std::vector<std::string> try_to_reach(const std::vector<Target>& targets, std::chrono::milliseconds limit);

/// The numeric addresses of a name, none where it is not known; `why` is then for people. May take seconds.
std::vector<std::string> addresses_of(const std::string& name, std::string& why);

}  // namespace lockstep::apps::launch
