// The addresses at which other hosts may reach this one, and TCP connections to other hosts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/net/socket.h"

namespace lockstep::inline v0::net {

/// Numeric addresses at which this host or others may reach it: loopback first, then IPv4, then
/// IPv6. At most eight.
std::vector<std::string> host_addresses();
/// host_addresses() without loopback.
std::vector<std::string> addresses_for_other_hosts();
bool is_loopback(const std::string& address);

/// The numeric addresses of a host name. Empty if it cannot be resolved; then `why` is the error
/// message. May take seconds.
std::vector<std::string> addresses_of(const std::string& name, std::string& why);

/// A numeric address and a TCP port.
struct Endpoint {
  std::string address{};
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

/// An attempt to connect to a host at one of its endpoints.
struct Attempt {
  std::size_t host = 0;  ///< index in the list of hosts
  Endpoint endpoint{};
  FileDescriptor socket{};  ///< connected and non-blocking; not open on failure
  bool timed_out = false;
  std::string failure{};  ///< human-readable; empty on success
};

/// What ends connect_to_hosts() before its limit.
enum class Until {
  each_host_answered,  ///< at one of its endpoints; attempts at the others then count as timed out
  each_endpoint_answered,  ///< or failed
};

/// Connects to all endpoints of all hosts concurrently. Returns one attempt for each endpoint, in
/// order, after `limit` at the latest.
std::vector<Attempt> connect_to_hosts(const std::vector<std::vector<Endpoint>>& hosts,
                                      std::chrono::milliseconds limit, Until until);

/// Connects within `limit`; the socket is non-blocking. On failure, the result is not open and
/// `why` is a human-readable reason.
FileDescriptor connect_to(const std::string& address, std::uint16_t port,
                          std::chrono::milliseconds limit, std::string& why);

}  // namespace lockstep::inline v0::net
