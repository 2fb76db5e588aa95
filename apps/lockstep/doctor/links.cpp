#include "apps/lockstep/doctor/links.h"

#include <mpi.h>

#include <algorithm>
#include <limits>
#include <set>

namespace lockstep::apps::doctor {
namespace {

constexpr const char* kCheck = "links";
constexpr int kRounds = 3;
constexpr double kGigabyte = 1e9;
constexpr double kMegabit = 1e6;

/// The ranks that send in a circle; MPI_COMM_NULL on those that do not.
class Circle {
 public:
  explicit Circle(const Ranks& ranks) {
    const bool takes_part = ranks.session().nodes() == 1 || ranks.mine().local_rank == 0;
    MPI_Comm_split(ranks.session().ranks(), takes_part ? 0 : MPI_UNDEFINED, ranks.mine().rank, &members_);
  }
  Circle(const Circle&) = delete;
  Circle& operator=(const Circle&) = delete;
  ~Circle() {
    if (members_ != MPI_COMM_NULL) MPI_Comm_free(&members_);
  }

  bool contains_this() const { return members_ != MPI_COMM_NULL; }

  /// Seconds until the message of the rank before was here.
  double pass(std::vector<char>& to_next, std::vector<char>& from_previous, std::size_t bytes) const {
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(members_, &rank);
    MPI_Comm_size(members_, &size);
    MPI_Barrier(members_);
    const double begin = MPI_Wtime();
    MPI_Request sent = MPI_REQUEST_NULL;
    MPI_Isend(to_next.data(), static_cast<int>(bytes), MPI_BYTE, (rank + 1) % size, 0, members_, &sent);
    MPI_Recv(from_previous.data(), static_cast<int>(bytes), MPI_BYTE, (rank + size - 1) % size, 0, members_,
             MPI_STATUS_IGNORE);
    const double seconds = MPI_Wtime() - begin;
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
    return seconds;
  }

  double slowest(double mine) const {
    double all = mine;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, members_);
    return all;
  }

 private:
  MPI_Comm members_ = MPI_COMM_NULL;
};

/// Bytes a second that came in. Messages grow until one takes its part of `seconds`: shorter ones may pass in the
/// burst that a limited link lets through.
double receive_rate(const Circle& circle, double seconds) {
  constexpr std::size_t kFirst = std::size_t{64} << 10;
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  std::vector<char> to_next(kLargest, 1);
  std::vector<char> from_previous(kLargest);
  circle.pass(to_next, from_previous, kFirst);  // connects
  std::size_t bytes = kFirst;
  // What disturbs one pass need not disturb the next.
  const auto shortest = [&](int passes) {
    double best = std::numeric_limits<double>::max();
    for (int pass = 0; pass < passes; ++pass) best = std::min(best, circle.pass(to_next, from_previous, bytes));
    return best;
  };
  while (bytes < kLargest && circle.slowest(shortest(2)) < seconds / kRounds / 2) bytes *= 2;
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
    const allreduce::CollectiveScope scope(&ranks.activity(), kCheck);
    const Circle circle(ranks);
    if (circle.contains_this()) facts.gigabytes = receive_rate(circle, seconds) / kGigabyte;
    if (circle.contains_this()) facts.from = 0;
  }
  Reports<LinkFacts> links = ranks.share<LinkFacts>(kCheck, {.facts = facts});
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
    if (report.facts.from >= 0 && (slowest == 0 || report.facts.gigabytes < slowest)) slowest = report.facts.gigabytes;
  return slowest;
}

Outcome judge_links(const Reports<LinkFacts>& links, const Reports<NetworkFacts>& network) {
  constexpr double kBesideOthers = 0.5;
  constexpr double kBesideInterface = 0.4;
  Outcome outcome{.check = kCheck};
  const double median = median_link(links);
  std::set<int> nodes;
  for (const auto& report : links.answered) nodes.insert(report.place.node);
  const bool between_hosts = nodes.size() > 1;  // within one, what is slow is the business of its cores
  const bool has_others = nodes.size() > 2;
  outcome.skipped = links.answered.empty();
  outcome.summary =
      outcome.skipped ? "one rank: no link between ranks"
                      : fmt::format("{:.3g} GB/s between neighbours, the slowest {:.3g}", median, slowest_link(links));
  const auto wires = wire_speeds(network);
  for (const auto& [place, facts] : links.answered) {
    if (facts.from < 0 || !between_hosts) continue;
    const auto wire = wires.find(place.rank);
    const double interface = wire == wires.end() ? 0 : static_cast<double>(wire->second) / 8 / kGigabyte;
    if (has_others && facts.gigabytes < kBesideOthers * median)
      outcome.add({.ranks = {place.rank},
                   .level = Level::warning,
                   .what = fmt::format("{} receives {:.3g} GB/s from rank {}, where others receive {:.3g}", place.host,
                                       facts.gigabytes, facts.from, median),
                   .remedy = "look at the cables, ports and other traffic of these two hosts: ethtool, ip -s link"});
    else if (facts.gigabytes < kBesideInterface * interface)
      outcome.add({.ranks = {place.rank},
                   .level = Level::warning,
                   .what = fmt::format("{} receives {:.3g} GB/s from rank {} over an interface of {:.0f} Mbit/s, which "
                                       "could carry {:.3g}",
                                       place.host, facts.gigabytes, facts.from, interface * 8 * kGigabyte / kMegabit,
                                       interface),
                   .remedy = "look for other traffic and limits on the way (ip -s link, tc qdisc), give MPI more "
                             "connections (mpirun --mca btl_tcp_links 4), or jumbo frames (mtu 9000 on all hosts)"});
  }
  return outcome;
}

}  // namespace lockstep::apps::doctor
