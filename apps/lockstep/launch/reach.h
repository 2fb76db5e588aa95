// Tests whether hosts can reach each other before mpirun runs, which would wait for unreachable hosts.
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
/// Throws Error (communication) for invalid text.
std::vector<Target> parse_targets(const std::string& text);

/// Raises this process's limit of open files for a job of `tasks`, as far as the hard limit allows: per task, its
/// connection, that of an agent of mpirun, and attempts at all addresses of its host.
void allow_connections(int tasks);

/// Connects to all targets concurrently. Returns an entry for each host that did not answer at any address within
/// `limit`, with the most informative error: "b at 10.0.0.2 by eth0: Connection refused".
std::vector<std::string> try_to_reach(const std::vector<Target>& targets, std::chrono::milliseconds limit);

/// The numeric addresses of a host name. Empty if it cannot be resolved; then `why` is the error message. May take
/// seconds.
std::vector<std::string> addresses_of(const std::string& name, std::string& why);

}  // namespace lockstep::apps::launch
