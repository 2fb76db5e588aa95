#include "lockstep/allreduce/groups/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <vector>

#include "lockstep/allreduce/groups/groups.h"
#include "lockstep/allreduce/groups/route.h"
#include "lockstep/allreduce/groups/topology.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/base/clock.h"
#include "lockstep/device/buffer.h"

namespace lockstep::inline v0::allreduce {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSmallest = std::size_t{256} << 10;  // bytes
constexpr std::size_t kLargest = std::size_t{4} << 20;
constexpr double kLongEnough = 0.02;  // seconds of the fastest route; sufficient to compare
constexpr int kTries = 2;             // per route and size, after one warm-up

struct Candidate {
  Route route;
  Communicator group;
  device::Buffer buffer;
  double seconds = 0;
};

std::string describe(const Topology& topology) {
  if (topology.nodes() == 1) return fmt::format("{} ranks on one node", topology.ranks());
  if (topology.max_ranks_per_node() == 1)
    return fmt::format("{} nodes with one rank each", topology.nodes());
  return fmt::format("{} ranks on {} nodes", topology.ranks(), topology.nodes());
}

// The best of a few tries, each timed on the slowest rank.
double time_once(const Communicator& ranks, const Communicator& group, std::span<float> values) {
  double best = 0;
  for (int attempt = -1; attempt < kTries; ++attempt) {
    group.barrier();
    const Clock::time_point begin = Clock::now();
    group.all_reduce(values).wait();
    const double seconds = std::ranges::max(gather_values(ranks, seconds_since(begin)));
    if (attempt == 0 || (attempt > 0 && seconds < best)) best = seconds;
  }
  return best;
}

std::size_t measure(const Communicator& ranks, std::vector<Candidate>& candidates) {
  for (std::size_t bytes = kSmallest;; bytes *= 4) {
    double fastest = kLongEnough;
    for (Candidate& candidate : candidates) {
      candidate.seconds = time_once(ranks, candidate.group,
                                    candidate.buffer.as<float>().first(bytes / sizeof(float)));
      fastest = std::min(fastest, candidate.seconds);
    }
    if (fastest >= kLongEnough || bytes >= kLargest) return bytes;
  }
}

std::string times_text(const std::vector<Candidate>& candidates, std::size_t bytes) {
  std::string text = fmt::format("{} KiB", bytes >> 10);
  for (const Candidate& candidate : candidates)
    text += fmt::format("{} {:.1f} ms by {}", &candidate == &candidates.front() ? " take" : ",",
                        candidate.seconds * 1000, to_string(candidate.route));
  return text;
}

}  // namespace

Selection select_route(const Communicator& ranks, std::optional<Route> remembered) {
  std::vector<Route> routes;
  std::string layout;
  {
    const Topology topology(ranks);
    routes = topology.candidates();
    layout = describe(topology);
  }
  if (remembered && std::ranges::find(routes, *remembered) != routes.end())
    return {*remembered, layout + ", as in the run that is resumed"};
  // Within a node shared memory is always the fastest, so no measurement is needed.
  if (routes.size() == 1 || info_of(routes.front()).medium == Medium::memory)
    return {routes.front(), layout};
  std::vector<Candidate> candidates;
  for (const Route route : routes) {
    Communicator group = make_rank_group(ranks, route);
    device::Buffer buffer = group.allocate(kLargest);
    candidates.push_back({route, std::move(group), std::move(buffer)});
  }
  const std::size_t bytes = measure(ranks, candidates);
  const auto fastest = std::ranges::min_element(candidates, {}, &Candidate::seconds);
  return {fastest->route, fmt::format("{}; {}", layout, times_text(candidates, bytes))};
}

}  // namespace lockstep::inline v0::allreduce
