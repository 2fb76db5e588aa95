#include "apps/lockstep/doctor/speed.h"

#include <dnnl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>

#include "lockstep/base/clock.h"
#include "lockstep/base/host.h"
#include "lockstep/job/device_share.h"

namespace lockstep::apps::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr dnnl_dim_t kSide = 512;
constexpr std::size_t kCopied = std::size_t{16} << 20;  // larger than the private caches of a core
constexpr double kSlow = 0.75;                          // of the fastest rank's speed
constexpr double kUseless = 1.0 / 3;
constexpr int kFewest = 3;

/// CPU time of all threads of this process, in seconds.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Calls `work` repeatedly for `seconds`. Returns the shortest time of a call, which excludes most disturbances.
template <typename Work>
double shortest(double seconds, Work work) {
  work();  // warm-up: the first call allocates what is cached
  double best = std::numeric_limits<double>::max();
  const auto begin = Clock::now();
  for (int round = 0; round < kFewest || seconds_since(begin) < seconds; ++round) {
    const auto start = Clock::now();
    work();
    best = std::min(best, seconds_since(start));
  }
  return best;
}

SpeedFacts multiply(int cores, double seconds) {
  set_thread_budget(cores);
  const std::vector<float> left(kSide * kSide, 1.0F / 3);
  const std::vector<float> right(kSide * kSide, 3.0F);
  std::vector<float> product(kSide * kSide);
  const auto begin = Clock::now();
  const double used_before = processor_seconds();
  const double best = shortest(seconds, [&] {
    dnnl_sgemm('N', 'N', kSide, kSide, kSide, 1, left.data(), kSide, right.data(), kSide, 0, product.data(), kSide);
  });
  const double used = processor_seconds() - used_before;
  constexpr double kOperations = 2.0 * kSide * kSide * kSide;
  return {.cores = cores,
          .gigaflops = kOperations / best / 1e9,
          .copied_gigabytes = 0,
          .share_of_cores = std::min(1.0, used / (seconds_since(begin) * cores))};
}

double copy(double seconds) {
  const std::vector<char> from(kCopied, 1);
  std::vector<char> to(kCopied);
  return static_cast<double>(kCopied) / 1e9 / shortest(seconds, [&] { std::memcpy(to.data(), from.data(), kCopied); });
}

/// Time limit for a measurement of `seconds`, including the warm-up.
std::chrono::milliseconds least_for(double seconds) {
  return std::chrono::milliseconds(2000 + static_cast<std::int64_t>(1000 * seconds));
}

struct Extent {
  double slowest = 0;
  double fastest = 0;
};
Extent extent_of(const Reports<SpeedFacts>& reports, double SpeedFacts::*speed) {
  Extent extent;
  for (const auto& report : reports.answered) {
    const double mine = report.facts.*speed;
    extent.fastest = std::max(extent.fastest, mine);
    extent.slowest = extent.slowest == 0 ? mine : std::min(extent.slowest, mine);
  }
  return extent;
}

}  // namespace

Reports<SpeedFacts> measure_speed(Ranks& ranks, double seconds) {
  constexpr const char* kCheck = "matrix-product";
  const int cores = job::share_of_cores(ranks.session());
  // All ranks measure at the same time, as in a training, so that contention between them is included.
  ranks.barrier(kCheck);
  Measured<SpeedFacts> speed = measured_within<SpeedFacts>(ranks.limit(least_for(0.7 * seconds)),
                                                           [cores, seconds] { return multiply(cores, 0.7 * seconds); });
  ranks.barrier(kCheck);
  const Measured<double> copied =
      measured_within<double>(ranks.limit(least_for(0.3 * seconds)), [seconds] { return copy(0.3 * seconds); });
  if (speed.facts && copied.facts)
    speed.facts->copied_gigabytes = *copied.facts;
  else if (speed.facts)
    speed = {.why_none = copied.why_none};
  return ranks.share<SpeedFacts>(kCheck, speed);
}

Outcome judge_product(const Reports<SpeedFacts>& reports) {
  constexpr double kAlone = 0.8;
  Outcome outcome{.check = "matrix-product"};
  add_missing(outcome, reports.missing, "check which programs run on that host (top) and whether it throttles (dmesg)");
  const Extent extent = extent_of(reports, &SpeedFacts::gigaflops);
  for (const auto& [place, facts] : reports.answered) {
    if (facts.gigaflops < kSlow * extent.fastest)
      outcome.add(
          {.ranks = {place.rank},
           .level = facts.gigaflops < kUseless * extent.fastest ? Level::problem : Level::warning,
           .what = fmt::format("multiplies at {:.3g} GFLOP/s on {} with {} core{}, the fastest rank at {:.3g}: "
                               "every step waits for the slowest",
                               facts.gigaflops, place.host, facts.cores, facts.cores == 1 ? "" : "s", extent.fastest),
           .remedy = "check its binding (see the check cores), other programs there (top), and its temperature and "
                     "clock frequency (turbostat); or exclude the host"});
    if (facts.share_of_cores < kAlone)
      outcome.add({.ranks = {place.rank},
                   .level = Level::warning,
                   .what = fmt::format("got at most {:.0f} % of the time of its cores on {}",
                                       10 * std::ceil(10 * facts.share_of_cores), place.host),
                   .remedy = "end other programs there (shown by top), or bind the ranks to other cores"});
  }
  outcome.summary = fmt::format("{:.3g} to {:.3g} GFLOP/s per rank", extent.slowest, extent.fastest);
  return outcome;
}

double slowest_copy(const Reports<SpeedFacts>& reports) {
  return extent_of(reports, &SpeedFacts::copied_gigabytes).slowest;
}

Outcome judge_copy(const Reports<SpeedFacts>& reports) {
  constexpr double kSlowMemory = 0.5;
  Outcome outcome{.check = "memory-copy"};
  const Extent extent = extent_of(reports, &SpeedFacts::copied_gigabytes);
  for (const auto& [place, facts] : reports.answered)
    if (facts.copied_gigabytes < kSlowMemory * extent.fastest)
      outcome.add({.ranks = {place.rank},
                   .level = Level::warning,
                   .what = fmt::format("copies {:.3g} GB/s on {}, the fastest rank {:.3g}", facts.copied_gigabytes,
                                       place.host, extent.fastest),
                   .remedy = "bind each rank to cores and memory of one socket (mpirun --bind-to core --map-by numa), "
                             "and check which other programs run there"});
  outcome.summary = fmt::format("{:.3g} to {:.3g} GB/s per rank, all at once", extent.slowest, extent.fastest);
  return outcome;
}

}  // namespace lockstep::apps::doctor
