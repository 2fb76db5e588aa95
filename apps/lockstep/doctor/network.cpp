#include "apps/lockstep/doctor/network.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

constexpr const char* kNetworkCheck = "network";
constexpr std::size_t kMaxHosts = 16;     // other hosts that one host connects to
constexpr std::size_t kMaxAddresses = 8;  // per host
constexpr std::chrono::milliseconds kConnectLimit{1500};
constexpr std::chrono::milliseconds kLeast =
    2 * kConnectLimit + std::chrono::milliseconds(1000);  // connect and reply
constexpr const char* kNoPort = "it could not open a port";
constexpr const char* kNoAddress = "it has no address";

/// The addresses at which a host accepts connections.
struct Contact {
  std::vector<net::NetworkAddress> addresses = {};
  std::vector<int> ports = {};  ///< port of each address; 0: none could be opened

  bool has_port() const {
    return std::ranges::any_of(ports, [](int port) { return port > 0; });
  }

  NLOHMANN_DEFINE_TYPE_INTRUSIVE_WITH_DEFAULT(Contact, addresses, ports)
};

/// Sent to every client, so that it can identify the host: several hosts may have the same address,
/// such as that of a container bridge.
std::string greeting(int rank) { return fmt::format("lockstep {:<10}", rank); }

/// Waits for the greeting of a rank. Returns the error; empty if this rank answered.
std::string receive_greeting(const FileDescriptor& socket, int rank,
                             std::chrono::steady_clock::time_point deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  pollfd ready{.fd = socket.get(), .events = POLLIN, .revents = 0};
  std::array<char, 64> buffer{};
  if (::poll(&ready, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0))) <= 0)
    return "connected, but no response";
  const ssize_t got = ::recv(socket.get(), buffer.data(), buffer.size(), 0);
  const std::string text(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return text == greeting(rank) ? "" : "another host answers there";
}

/// The first ranks of the other hosts, in ring order after `mine`.
std::vector<Reported<Contact>> others_of(const Reports<Contact>& all, const Place& mine) {
  std::vector<Reported<Contact>> before;
  std::vector<Reported<Contact>> others;
  for (const auto& report : all.answered) {
    if (report.place.local_rank != 0 || report.place.node == mine.node) continue;
    (report.place.node < mine.node ? before : others).push_back(report);
  }
  others.insert(others.end(), before.begin(), before.end());
  others.resize(std::min(others.size(), kMaxHosts));
  return others;
}

std::vector<Attempt> call_all(const std::vector<Reported<Contact>>& others) {
  std::vector<Attempt> attempts;
  std::vector<std::vector<net::Endpoint>>
      endpoints;  // by attempt: one, or none if it has failed already
  const auto add = [&](const Attempt& attempt, int port) {
    attempts.push_back(attempt);
    endpoints.emplace_back();
    if (attempt.failure.empty())
      endpoints.back().push_back(
          {.address = attempt.address, .port = static_cast<std::uint16_t>(port)});
  };
  for (const auto& [place, contact] : others) {
    if (contact.addresses.empty()) {
      add({.rank = place.rank, .failure = kNoAddress}, 0);
    } else if (!contact.has_port()) {
      add({.rank = place.rank, .failure = kNoPort}, 0);
    } else {
      for (std::size_t i = 0; i < contact.addresses.size(); ++i) {
        const net::NetworkAddress& to = contact.addresses[i];
        const int port = contact.ports.at(i);
        add({.rank = place.rank,
             .interface = to.interface,
             .address = to.address,
             .network = to.network,
             .failure = port == 0 ? kNoPort : ""},
            port);
      }
    }
  }
  const auto tried =
      net::connect_to_hosts(endpoints, kConnectLimit, net::Until::each_endpoint_answered);
  const auto deadline = std::chrono::steady_clock::now() + kConnectLimit;
  for (const net::Attempt& one : tried) {
    Attempt& attempt = attempts[one.host];
    attempt.failure =
        one.failure.empty() ? receive_greeting(one.socket, attempt.rank, deadline) : one.failure;
  }
  return attempts;
}

std::vector<net::NetworkAddress> addresses_of_this_host() {
  std::vector<net::NetworkAddress> all = net::network_addresses();
  all.resize(std::min(all.size(), kMaxAddresses));
  return all;
}

std::int64_t count_ports() {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  return last > first ? last - first + 1 : 0;
}

std::string host_of(const Reports<NetworkFacts>& reports, int rank) {
  for (const auto& report : reports.answered)
    if (report.place.rank == rank) return report.place.host;
  return "?";
}

/// The interface to recommend for MPI and NCCL on all hosts.
struct NetworkChoice {
  /// An interface, or a network if its interfaces have different names; empty: none.
  std::string mpi = {};
  std::string nccl = {};  ///< interfaces

  bool includes(const Attempt& attempt) const {
    return mpi == attempt.interface || mpi == attempt.network;
  }
};

/// The interface or network with the most successful attempts; empty if none succeeded.
std::string most_successful(const Reports<NetworkFacts>& reports, std::string Attempt::*name) {
  std::map<std::string, int> successes;
  for (const auto& report : reports.answered)
    for (const Attempt& attempt : report.facts.attempts)
      if (attempt.failure.empty()) ++successes[attempt.*name];
  const auto best =
      std::ranges::max_element(successes, {}, [](const auto& entry) { return entry.second; });
  return best == successes.end() ? "" : best->first;
}

NetworkChoice choose_network(const Reports<NetworkFacts>& reports) {
  const std::string interface = most_successful(reports, &Attempt::interface);
  const bool all_have_it =
      std::ranges::all_of(reports.answered, [&](const Reported<NetworkFacts>& report) {
        return report.place.local_rank != 0 ||
               std::ranges::find(report.facts.addresses, interface,
                                 &net::NetworkAddress::interface) != report.facts.addresses.end();
      });
  if (all_have_it) return {.mpi = interface, .nccl = interface};
  const std::string network = most_successful(reports, &Attempt::network);
  std::set<std::string> interfaces;
  for (const auto& report : reports.answered)
    for (const net::NetworkAddress& address : report.facts.addresses)
      if (address.network == network) interfaces.insert(address.interface);
  return {.mpi = network, .nccl = fmt::format("{}", fmt::join(interfaces, ","))};
}

std::string remedy_of(const Attempt& attempt, bool otherwise, const NetworkChoice& best) {
  if (attempt.failure == kNoPort)
    return "check the limits of that host: ulimit -n, and see the check ports";
  if (attempt.failure == kNoAddress)
    return "configure an address: check its interfaces (ip address)";
  if (otherwise && !best.mpi.empty() && !best.includes(attempt))
    return fmt::format(
        "restrict MPI to what works: mpirun --mca btl_tcp_if_include {0} --mca oob_tcp_if_include "
        "{0}; for NCCL, set NCCL_SOCKET_IFNAME={1}",
        best.mpi, best.nccl);
  return "allow TCP connections between these hosts on all ports: check the cable, the routes (ip "
         "route) and the firewall";
}

void judge_attempts(Outcome& outcome, const Reports<NetworkFacts>& reports,
                    const Reported<NetworkFacts>& from, const NetworkChoice& best) {
  std::set<int> reached;
  for (const Attempt& attempt : from.facts.attempts)
    if (attempt.failure.empty()) reached.insert(attempt.rank);
  for (const Attempt& attempt : from.facts.attempts) {
    if (attempt.failure.empty()) continue;
    const bool otherwise = reached.contains(attempt.rank);
    const std::string by = attempt.interface.empty()
                               ? ""
                               : fmt::format("by {} {} ", attempt.interface, attempt.address);
    outcome.add(
        {{from.place.rank},
         otherwise ? Level::warning : Level::problem,
         fmt::format("cannot reach {} {}({})", host_of(reports, attempt.rank), by, attempt.failure),
         remedy_of(attempt, otherwise, best)});
  }
}

/// The pairs of rank and address that were reached.
std::set<std::pair<int, std::string>> reached_addresses(const Reports<NetworkFacts>& reports) {
  std::set<std::pair<int, std::string>> reached;
  for (const auto& report : reports.answered)
    for (const Attempt& attempt : report.facts.attempts)
      if (attempt.failure.empty()) reached.emplace(attempt.rank, attempt.address);
  return reached;
}

/// Reports different MTUs in one network: connections succeed, but large messages hang because
/// packets are dropped.
void judge_packets(Outcome& outcome, const Reports<NetworkFacts>& reports) {
  struct First {
    std::string host;
    int mtu;
  };
  std::map<std::string, First> first_of;
  const auto reached = reached_addresses(reports);
  for (const auto& report : reports.answered) {
    for (const net::NetworkAddress& address : report.facts.addresses) {
      if (address.mtu == 0 || !reached.contains({report.place.rank, address.address})) continue;
      const First& first =
          first_of.emplace(address.network, First{report.place.host, address.mtu}).first->second;
      if (first.mtu == address.mtu) continue;
      outcome.warn(
          report.place,
          fmt::format("{} of {} sends packets of {} bytes on {}, and {} of {}", address.interface,
                      report.place.host, address.mtu, address.network, first.host, first.mtu),
          fmt::format("set the same MTU on all hosts: ip link set {} mtu {}", address.interface,
                      std::min(address.mtu, first.mtu)));
    }
  }
}

}  // namespace

Greeter::Greeter(int rank, const std::vector<net::NetworkAddress>& addresses) {
  for (const net::NetworkAddress& address : addresses) {
    try {
      listeners_.emplace_back(address.address, std::uint16_t{0});
      ports_.push_back(listeners_.back().port());
    } catch (const Error&) {
      ports_.push_back(0);
    }
  }
  thread_ = std::jthread(
      [this, text = greeting(rank)](const std::stop_token& stop) { greet(stop, text); });
}

void Greeter::greet(const std::stop_token& stop, const std::string& text) const {
  constexpr int kMilliseconds = 20;
  std::vector<pollfd> ready;
  for (const net::Listener& listener : listeners_)
    ready.push_back({.fd = listener.descriptor(), .events = POLLIN, .revents = 0});
  while (!stop.stop_requested()) {
    if (::poll(ready.data(), ready.size(), kMilliseconds) <= 0) continue;
    for (const net::Listener& listener : listeners_) {
      const FileDescriptor caller = listener.accept();
      if (caller.is_open()) ::send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }
}

Reports<NetworkFacts> measure_network(Ranks& ranks) {
  const bool is_first = ranks.mine().local_rank == 0;
  std::unique_ptr<Greeter> greeter;
  Contact contact;
  if (is_first) {
    contact.addresses = addresses_of_this_host();
    try {
      greeter = std::make_unique<Greeter>(ranks.mine().rank, contact.addresses);
      contact.ports = greeter->ports();
    } catch (const std::exception&) {
      contact.ports.clear();  // no thread is available; the attempts of other hosts report it
    }
  }
  const auto all = ranks.share<Contact>(kNetworkCheck, {.facts = contact});
  return ranks.measure<NetworkFacts>(
      kNetworkCheck,
      [contact, is_first, others = others_of(all, ranks.mine())] {
        NetworkFacts facts{.addresses = contact.addresses};
        if (is_first) facts.attempts = call_all(others);
        facts.ports = count_ports();
        return facts;
      },
      kLeast);
}

Outcome judge_network(const Reports<NetworkFacts>& reports) {
  Outcome outcome{.check = kNetworkCheck};
  add_missing(outcome, reports.missing, "log in to that host and check its interfaces: ip address");
  std::set<int> nodes;
  std::size_t attempts = 0;
  const NetworkChoice best = choose_network(reports);
  for (const auto& report : reports.answered) {
    nodes.insert(report.place.node);
    attempts += report.facts.attempts.size();
    judge_attempts(outcome, reports, report, best);
  }
  if (nodes.size() > 1) judge_packets(outcome, reports);
  outcome.summary = nodes.size() < 2
                        ? "one host: nothing to reach"
                        : fmt::format("{} hosts, {} connections tried, best by {}", nodes.size(),
                                      attempts, best.mpi.empty() ? "none" : best.mpi);
  return outcome;
}

Outcome judge_ports(const Reports<NetworkFacts>& reports) {
  constexpr std::int64_t kFew = 1000;
  Outcome outcome{.check = "ports"};
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& [place, facts] : reports.answered) {
    if (facts.ports == 0) continue;
    least = std::min(least, facts.ports);
    if (place.local_rank != 0 || facts.ports >= kFew) continue;
    outcome.warn(
        place,
        fmt::format("{} has {} ports for the connections of its ranks", place.host, facts.ports),
        "sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\", as root; or "
        "mpirun --mca btl_tcp_port_min_v4 and btl_tcp_port_range_v4 for a range "
        "that the firewall leaves open");
  }
  outcome.summary = least == std::numeric_limits<std::int64_t>::max()
                        ? "unknown"
                        : fmt::format("at least {} on every host", least);
  return outcome;
}

std::map<int, std::int64_t> wire_speeds(const Reports<NetworkFacts>& reports) {
  std::map<int, std::int64_t> speeds;
  const auto reached = reached_addresses(reports);
  for (const auto& [place, facts] : reports.answered)
    for (const net::NetworkAddress& address : facts.addresses)
      if (address.bits_per_second > 0 && reached.contains({place.rank, address.address}))
        speeds[place.rank] = std::max(speeds[place.rank], address.bits_per_second);
  return speeds;
}

}  // namespace lockstep::inline v0::apps::doctor
