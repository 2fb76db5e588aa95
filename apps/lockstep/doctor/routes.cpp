#include "apps/lockstep/doctor/routes.h"

#include <algorithm>

#include "apps/lockstep/reduction_timing.h"
#include "lockstep/allreduce/route.h"

namespace lockstep::apps::doctor {
namespace {

using allreduce::Route;

constexpr const char* kCheck = "routes";
constexpr std::size_t kFirstBytes = std::size_t{64} << 10;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

std::vector<Route> usual_routes(const Ranks& ranks) {
  if (ranks.session().ranks() == MPI_COMM_NULL || ranks.session().size() == 1) return {Route::in_process};
  std::vector<Route> routes = allreduce::Topology(ranks.session().ranks()).candidates();
  routes.push_back(Route::mpi);
  return routes;
}

/// One size on one route; the chief alone learns the figures.
ReductionTiming time_once(Ranks& ranks, int replicas, Route route, std::size_t bytes, int iterations) {
  ReductionTiming timing;
  const ReductionPlan plan{
      .bytes = {bytes}, .dtype = "float32", .routes = {route}, .iterations = iterations, .check = false};
  time_reductions(
      ranks.session(), replicas, plan,
      {.size_begins = [](std::size_t) {}, .timed = [&](const ReductionTiming& result) { timing = result; }});
  ranks.activity().tick();
  return timing;
}

/// What rank 0 has, on all.
double as_rank_zero(Ranks& ranks, double mine) {
  return std::stod(ranks.session().all_gather(std::to_string(mine)).front());
}

/// Runs `work` on all ranks; why it failed on the first rank on which it did, the same on all; empty where on none.
std::string attempt(Ranks& ranks, const std::function<void()>& work) {
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  for (const std::string& text : ranks.session().all_gather(failure))
    if (!text.empty()) return text;
  return "";
}

double bus_factor(int members) { return 2.0 * (members - 1) / members; }

bool in_memory(const std::string& route) { return route == "shared-memory" || route == "in-process"; }

/// Buffers grow until a call takes its part of `seconds`: small ones may fit into the burst that a limited link lets
/// through.
RouteReading time_route(Ranks& ranks, int replicas, Route route, double seconds) {
  constexpr double kCalls = 24;  // of a measurement, those that do not count among them
  RouteReading reading{.route = to_string(route), .bytes = kFirstBytes};
  ReductionTiming timing;
  double taken = 0;
  for (;; reading.bytes *= 4) {
    reading.failure = attempt(ranks, [&] { timing = time_once(ranks, replicas, route, reading.bytes, 3); });
    if (!reading.failure.empty()) return reading;
    taken = as_rank_zero(ranks, timing.best_microseconds) / 1e6;
    if (taken * kCalls > seconds || reading.bytes >= kMostBytes) break;
  }
  const int iterations = static_cast<int>(std::clamp(seconds / 2 / std::max(taken, 1e-6), 3.0, 10.0));
  reading.failure = attempt(ranks, [&] { timing = time_once(ranks, replicas, route, reading.bytes, iterations); });
  if (timing.best_microseconds <= 0) return reading;
  const double gigabytes = static_cast<double>(reading.bytes) / timing.best_microseconds / 1e3;
  reading.bus_gigabytes = gigabytes * bus_factor(replicas * ranks.session().size());
  if (in_memory(reading.route))
    reading.carried_gigabytes = gigabytes;  // each member reads and writes as much as the buffer has
  else if (route == Route::hierarchical)
    reading.carried_gigabytes = gigabytes * bus_factor(ranks.session().nodes());
  else
    reading.carried_gigabytes = reading.bus_gigabytes;
  return reading;
}

}  // namespace

std::vector<RouteReading> measure_routes(Ranks& ranks, std::vector<Route> routes, double seconds) {
  const allreduce::CollectiveScope scope(&ranks.activity(), kCheck);
  if (routes.empty()) routes = usual_routes(ranks);
  const int replicas = ranks.session().size() == 1 ? 2 : 1;
  std::vector<RouteReading> readings;
  for (const Route route : routes)
    readings.push_back(time_route(ranks, replicas, route, seconds / static_cast<double>(routes.size())));
  return readings;
}

Outcome judge_routes(const std::vector<RouteReading>& readings, const LinkSpeeds& speeds) {
  constexpr double kOfCopying = 0.15;
  constexpr double kOfWire = 0.3;
  Outcome outcome{.check = kCheck};
  for (const RouteReading& reading : readings) {
    if (!outcome.summary.empty()) outcome.summary += ", ";
    if (!reading.failure.empty()) {
      outcome.summary += reading.route + " failed";
      outcome.add({.level = Level::problem,
                   .what = fmt::format("{} does not work here: {}", reading.route, reading.failure),
                   .remedy = "train with --allreduce auto, or with a route that works"});
      continue;
    }
    const bool by_memory = in_memory(reading.route);
    const double link = by_memory ? speeds.copied_gigabytes : speeds.wire_gigabytes;
    outcome.summary += fmt::format("{} {:.3g} GB/s", reading.route, reading.bus_gigabytes);
    if (link <= 0) continue;
    outcome.summary +=
        fmt::format(" ({:.0f} % of {})", 100 * reading.carried_gigabytes / link, by_memory ? "copying" : "the link");
    // MPI's own is there for comparison.
    if (reading.carried_gigabytes >= (by_memory ? kOfCopying : kOfWire) * link || reading.route == "mpi") continue;
    outcome.add({.level = Level::warning,
                 .what = fmt::format("{} moves {:.3g} GB/s, and {} {:.3g}", reading.route, reading.carried_gigabytes,
                                     by_memory ? "memory can be copied at" : "the link carries", link),
                 .remedy = by_memory ? "give each rank a core of its own (the check cores) and end what else runs there"
                                     : "compare the routes with lockstep allreduce-bench and choose one with "
                                       "--allreduce; more connections may help: mpirun --mca btl_tcp_links 4"});
  }
  return outcome;
}

}  // namespace lockstep::apps::doctor
