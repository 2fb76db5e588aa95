#include "apps/lockstep/doctor/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <set>

#include "apps/lockstep/allreduce_bench/reduction_timing.h"
#include "lockstep/allreduce/groups/ranks.h"
#include "lockstep/allreduce/groups/route.h"
#include "lockstep/allreduce/groups/topology.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/transport/direct_messages.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/base/clock.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

constexpr const char* kLinksCheck = "links";
constexpr int kRounds = 3;
constexpr double kGigabyte = 1e9;
constexpr double kMegabit = 1e6;

constexpr std::size_t kLargestPass = std::size_t{16} << 20;

/// The ranks that send in a ring: the first of each host, or all ranks of one.
std::optional<allreduce::Communicator> make_ring(const job::Session& session) {
  const allreduce::Communicator& all = session.ranks();
  std::vector<int> members;
  std::set<int> nodes;
  for (int rank = 0; rank < all.size(); ++rank)
    if (nodes.insert(allreduce::node_of(all, rank)).second || session.nodes() == 1)
      members.push_back(rank);
  return allreduce::make_subset(all, members);
}

/// A member of the ring.
class RankRing {
 public:
  explicit RankRing(const allreduce::Communicator& members)
      : members_(members), messages_(*members.impl()->transport(), kLargestPass) {}

  /// Sends to the next rank. Returns the seconds until the message of the previous rank arrives.
  double pass(std::size_t bytes) {
    members_.barrier();
    const int size = members_.size();
    const auto begin = std::chrono::steady_clock::now();
    messages_.exchange((members_.rank() + 1) % size, (members_.rank() + size - 1) % size, bytes);
    return seconds_since(begin);
  }

  double slowest(double mine) const {
    return std::ranges::max(allreduce::gather_values(members_, mine));
  }

 private:
  allreduce::Communicator members_;
  allreduce::DirectMessages messages_;
};

/// Receive rate in bytes per second. Increases the message size until a message takes its share of
/// `seconds`, because short ones may fit into the burst size of a rate-limited link.
double receive_rate(const allreduce::Communicator& members, double seconds) {
  RankRing ring(members);
  constexpr std::size_t kFirst = std::size_t{64} << 10;
  ring.pass(kFirst);  // connects
  std::size_t bytes = kFirst;
  // The shortest of several passes, to exclude disturbances.
  const auto shortest = [&](int passes) {
    double best = std::numeric_limits<double>::max();
    for (int pass = 0; pass < passes; ++pass) best = std::min(best, ring.pass(bytes));
    return best;
  };
  while (bytes < kLargestPass && ring.slowest(shortest(2)) < seconds / kRounds / 2) bytes *= 2;
  return static_cast<double>(bytes) / shortest(kRounds);
}

double median_link(const Reports<LinkFacts>& links) {
  std::vector<double> all;
  for (const auto& report : links.answered)
    if (report.facts.from >= 0) all.push_back(report.facts.gigabytes);
  if (all.empty()) return 0;
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::ranges::nth_element(all, middle);
  return *middle;
}

}  // namespace

Reports<LinkFacts> measure_links(Ranks& ranks, double seconds) {
  if (ranks.session().size() == 1) return {};
  LinkFacts facts;
  {
    const allreduce::CollectiveScope scope(&ranks.activity(), kLinksCheck);
    if (const auto members = make_ring(ranks.session())) {
      facts.gigabytes = receive_rate(*members, seconds) / kGigabyte;
      facts.from = 0;
    }
  }
  Reports<LinkFacts> links = ranks.share<LinkFacts>(kLinksCheck, {.facts = facts});
  int previous = -1;
  for (const auto& report : links.answered)
    if (report.facts.from >= 0) previous = report.place.rank;  // the first follows the last
  for (auto& report : links.answered) {
    if (report.facts.from < 0) continue;
    report.facts.from = previous;
    previous = report.place.rank;
  }
  return links;
}

double slowest_link(const Reports<LinkFacts>& links) {
  double slowest = 0;
  for (const auto& report : links.answered)
    if (report.facts.from >= 0 && (slowest == 0 || report.facts.gigabytes < slowest))
      slowest = report.facts.gigabytes;
  return slowest;
}

Outcome judge_links(const Reports<LinkFacts>& links, const Reports<NetworkFacts>& network) {
  constexpr double kBesideOthers = 0.5;
  constexpr double kBesideInterface = 0.4;
  Outcome outcome{.check = kLinksCheck};
  const double median = median_link(links);
  std::set<int> nodes;
  for (const auto& report : links.answered) nodes.insert(report.place.node);
  const bool between_hosts =
      nodes.size() > 1;  // within a host, slow links are reported by the check cores
  const bool has_others = nodes.size() > 2;
  outcome.skipped = links.answered.empty();
  outcome.summary = outcome.skipped
                        ? "one rank: no link between ranks"
                        : fmt::format("{:.3g} GB/s between neighbors, the slowest {:.3g}", median,
                                      slowest_link(links));
  const auto wires = wire_speeds(network);
  for (const auto& [place, facts] : links.answered) {
    if (facts.from < 0 || !between_hosts) continue;
    const auto wire = wires.find(place.rank);
    const double interface =
        wire == wires.end() ? 0 : static_cast<double>(wire->second) / 8 / kGigabyte;
    if (has_others && facts.gigabytes < kBesideOthers * median)
      outcome.warn(place,
                   fmt::format("{} receives {:.3g} GB/s from rank {}, while others receive {:.3g}",
                               place.host, facts.gigabytes, facts.from, median),
                   "check the cables, ports and other traffic of these two hosts: ethtool, ip -s "
                   "link");
    else if (facts.gigabytes < kBesideInterface * interface)
      outcome.warn(place,
                   fmt::format("{} receives {:.3g} GB/s from rank {} over an interface of "
                               "{:.0f} Mbit/s, which could carry {:.3g}",
                               place.host, facts.gigabytes, facts.from,
                               interface * 8 * kGigabyte / kMegabit, interface),
                   "look for other traffic and limits on the path (ip -s link, tc "
                   "qdisc), use more connections (mpirun --mca btl_tcp_links 4), or "
                   "jumbo frames (mtu 9000 on all hosts)");
  }
  return outcome;
}

namespace {

using allreduce::Medium;
using allreduce::Route;

constexpr const char* kRoutesCheck = "routes";
constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
constexpr std::size_t kMaxBytes = std::size_t{16} << 20;

std::vector<Route> usual_routes(const Ranks& ranks) {
  if (ranks.session().size() > 1) return allreduce::Topology(ranks.session().ranks()).routes();
  std::vector<Route> routes;
  for (const allreduce::RouteInfo& info : allreduce::all_routes())
    if (info.process && info.route != Route::automatic) routes.push_back(info.route);
  return routes;
}

/// Times one size on one route. Only the chief receives the figures.
ReductionTiming time_once(Ranks& ranks, int replicas, Route route, std::size_t bytes,
                          int iterations) {
  ReductionTiming timing;
  const ReductionPlan plan{.bytes = {bytes},
                           .dtype = "float32",
                           .routes = {route},
                           .iterations = iterations,
                           .check = false};
  time_reductions(ranks.session(), replicas, plan,
                  {.size_begins = [](std::size_t) {},
                   .timed = [&](const ReductionTiming& result) { timing = result; }});
  ranks.activity().tick();
  return timing;
}

/// Returns rank 0's value on all ranks.
double as_rank_zero(Ranks& ranks, double mine) {
  return ranks.agreement().gather_values(kRoutesCheck, mine).front();
}

/// Runs `work` on all ranks. Returns the error of the first rank that failed, the same on all
/// ranks; empty if none did.
std::string attempt(Ranks& ranks, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  for (const std::string& text : ranks.agreement().gather(failure))
    if (!text.empty()) return text;
  return "";
}

double bus_factor(int members) { return 2.0 * (members - 1) / members; }

/// Increases the buffer until a call takes its share of `seconds`, because small buffers may fit
/// into the burst size of a rate-limited link.
RouteReading time_route(Ranks& ranks, int replicas, Route route, double seconds) {
  constexpr double kCalls = 24;  // per measurement, including untimed calls
  RouteReading reading{.route = route, .bytes = kFirstBytes};
  ReductionTiming timing;
  double taken = 0;
  for (;; reading.bytes *= 4) {
    reading.failure =
        attempt(ranks, [&] { timing = time_once(ranks, replicas, route, reading.bytes, 3); });
    if (!reading.failure.empty()) return reading;
    taken = as_rank_zero(ranks, timing.best_microseconds) / 1e6;
    if (taken * kCalls > seconds || reading.bytes >= kMaxBytes) break;
  }
  const int iterations =
      static_cast<int>(std::clamp(seconds / 2 / std::max(taken, 1e-6), 3.0, 10.0));
  reading.failure = attempt(
      ranks, [&] { timing = time_once(ranks, replicas, route, reading.bytes, iterations); });
  if (timing.best_microseconds <= 0) return reading;
  const double gigabytes = static_cast<double>(reading.bytes) / timing.best_microseconds / 1e3;
  reading.bus_gigabytes = gigabytes * bus_factor(replicas * ranks.session().size());
  switch (info_of(route).medium) {
    case Medium::memory:  // each member reads and writes as many bytes as the buffer has
      reading.carried_gigabytes = gigabytes;
      break;
    case Medium::memory_and_messages:
      reading.carried_gigabytes = gigabytes * bus_factor(ranks.session().nodes());
      break;
    case Medium::messages:
      reading.carried_gigabytes = reading.bus_gigabytes;
      break;
  }
  return reading;
}

}  // namespace

std::vector<RouteReading> measure_routes(Ranks& ranks, std::vector<Route> routes, double seconds) {
  const allreduce::CollectiveScope scope(&ranks.activity(), kRoutesCheck);
  if (routes.empty()) routes = usual_routes(ranks);
  const int replicas = ranks.session().size() == 1 ? 2 : 1;
  std::vector<RouteReading> readings;
  for (const Route route : routes)
    readings.push_back(
        time_route(ranks, replicas, route, seconds / static_cast<double>(routes.size())));
  return readings;
}

Outcome judge_routes(const std::vector<RouteReading>& readings, const LinkSpeeds& speeds) {
  constexpr double kOfCopying = 0.15;
  constexpr double kOfWire = 0.3;
  Outcome outcome{.check = kRoutesCheck};
  for (const RouteReading& reading : readings) {
    if (!outcome.summary.empty()) outcome.summary += ", ";
    const allreduce::RouteInfo& info = info_of(reading.route);
    if (!reading.failure.empty()) {
      outcome.summary += fmt::format("{} failed", info.name);
      outcome.add({.level = Level::problem,
                   .what = fmt::format("{} does not work here: {}", info.name, reading.failure),
                   .remedy = "train with --allreduce auto, or with a route that works"});
      continue;
    }
    const bool by_memory = info.medium == Medium::memory;
    const double link = by_memory ? speeds.copied_gigabytes : speeds.wire_gigabytes;
    outcome.summary += fmt::format("{} {:.3g} GB/s", info.name, reading.bus_gigabytes);
    if (link <= 0) continue;
    outcome.summary += fmt::format(" ({:.0f} % of {})", 100 * reading.carried_gigabytes / link,
                                   by_memory ? "copying" : "the link");
    // A route that nothing selects by itself is only for comparison.
    if (reading.carried_gigabytes >= (by_memory ? kOfCopying : kOfWire) * link ||
        info.only_on_request)
      continue;
    outcome.add(
        {.level = Level::warning,
         .what = fmt::format("{} transfers {:.3g} GB/s, while {} {:.3g}", info.name,
                             reading.carried_gigabytes,
                             by_memory ? "memory can be copied at" : "the link carries", link),
         .remedy =
             by_memory
                 ? "give each rank its own core (see the check cores) and end other programs there"
                 : "compare the routes with lockstep allreduce-bench and choose one with "
                   "--allreduce; more connections may help: mpirun --mca btl_tcp_links 4"});
  }
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
