#include "apps/lockstep/doctor/cores.h"

#include <fmt/format.h>

#include <dnnl.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "lockstep/base/clock.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/job/placement/device_share.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

using CoreReport = Reported<CoreFacts>;

std::string first_word(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

std::vector<int> ranks_of(const std::vector<const CoreReport*>& reports) {
  std::vector<int> ranks;
  for (const CoreReport* report : reports) ranks.push_back(report->place.rank);
  return ranks;
}

std::set<int> processors_of(const std::vector<const CoreReport*>& reports) {
  std::set<int> all;
  for (const CoreReport* report : reports)
    all.insert(report->facts.processors.begin(), report->facts.processors.end());
  return all;
}

/// Reports ranks of one host that share fewer processors than there are ranks. Returns whether
/// there are any.
bool judge_sharing(Outcome& outcome, const std::vector<const CoreReport*>& node) {
  bool found = false;
  std::map<std::vector<int>, std::vector<const CoreReport*>> by_mask;
  for (const CoreReport* report : node) by_mask[report->facts.processors].push_back(report);
  for (const auto& [processors, sharers] : by_mask) {
    if (processors.empty() || sharers.size() <= processors.size()) continue;
    found = true;
    const int online = sharers.front()->facts.online;
    const bool avoidable = online >= static_cast<int>(node.size());
    outcome.add(
        {ranks_of(sharers), avoidable ? Level::problem : Level::warning,
         avoidable
             ? fmt::format("{} ranks are bound to processor {} of {}, which has {} processors",
                           sharers.size(), number_list(processors), sharers.front()->place.host,
                           online)
             : fmt::format("{} ranks share the {} of {}", sharers.size(),
                           online == 1 ? "one processor" : fmt::format("{} processors", online),
                           sharers.front()->place.host),
         avoidable ? "mpirun --map-by core --bind-to core, or --bind-to none; and do not run "
                     "it under taskset"
                   : "start fewer ranks on each host: mpirun -np, or slots in the hostfile"});
  }
  return found;
}

/// The mpirun options that bind each rank to `processors` hardware threads.
std::string binding(int processors) {
  return fmt::format("mpirun --use-hwthread-cpus --map-by slot:PE={}", processors);
}

/// Reports processors of one host that no rank may use.
void judge_idle(Outcome& outcome, const std::vector<const CoreReport*>& node) {
  const auto used = static_cast<int>(processors_of(node).size());
  const int online = node.front()->facts.online;
  if (used == 0 || 2 * used >= online) return;
  outcome.add({ranks_of(node), Level::warning,
               fmt::format("the ranks of {} may use {} of its {} processors",
                           node.front()->place.host, used, online),
               fmt::format("{}, or --bind-to none",
                           binding(std::max(1, online / static_cast<int>(node.size()))))});
}

/// Reports ranks of one host whose CPU quota is smaller than their set of processors. Ranks with
/// the same quota are assumed to be in one control group, and share it.
void judge_quota(Outcome& outcome, const std::vector<const CoreReport*>& node) {
  std::map<double, std::vector<const CoreReport*>> by_quota;
  for (const CoreReport* report : node)
    if (report->facts.quota > 0) by_quota[report->facts.quota].push_back(report);
  for (const auto& [quota, sharers] : by_quota) {
    const std::size_t processors = processors_of(sharers).size();
    if (quota >= 0.9 * static_cast<double>(processors)) continue;
    outcome.add(
        {ranks_of(sharers), Level::warning,
         fmt::format(
             "the control group limits the ranks of {} to the time of {:.1f} processors, and they "
             "run on {}: they are throttled when the quota is used up",
             sharers.front()->place.host, quota, processors),
         "request whole processors from the container or batch system, at least one per rank "
         "(--cpus, cpu.max), or bind the ranks to as many processors as the quota allows"});
  }
}

void judge_rank(Outcome& outcome, const CoreReport& report) {
  const CoreFacts& facts = report.facts;
  const auto cores = static_cast<int>(facts.processors.size());
  if (facts.threads > cores)
    outcome.warn(
        report.place,
        fmt::format("OMP_NUM_THREADS requests {} threads on {} processors", facts.threads, cores),
        "unset OMP_NUM_THREADS, or give each rank as many processors: " + binding(facts.threads));
  // With the drivers intel_pstate and amd-pstate, the governor powersave reaches full speed under
  // load.
  if (facts.governor == "powersave" && !facts.driver.starts_with("intel_pstate") &&
      !facts.driver.starts_with("amd-pst"))
    outcome.warn(
        report.place,
        fmt::format("the processors of {} run at their lowest frequency (governor powersave)",
                    report.place.host),
        "cpupower frequency-set -g performance, as root");
}

}  // namespace

CoreFacts measure_cores() {
  CoreFacts facts{.processors = allowed_processors()};
  facts.online = static_cast<int>(processors_of_cpu_set().size());
  if (const char* threads = std::getenv("OMP_NUM_THREADS")) facts.threads = std::atoi(threads);
  facts.quota = processor_quota();
  const std::filesystem::path clock = "/sys/devices/system/cpu/cpu0/cpufreq";
  facts.governor = first_word(clock / "scaling_governor");
  facts.driver = first_word(clock / "scaling_driver");
  return facts;
}

Outcome judge_cores(const Reports<CoreFacts>& reports) {
  Outcome outcome{.check = "cores"};
  add_missing(outcome, reports.missing, kCheckTheHost);
  std::map<int, std::vector<const CoreReport*>> nodes;
  for (const CoreReport& report : reports.answered) nodes[report.place.node].push_back(&report);
  std::size_t fewest =
      reports.answered.empty() ? 0 : reports.answered.front().facts.processors.size();
  std::size_t most = fewest;
  for (const auto& [number, node] : nodes) {
    if (!judge_sharing(outcome, node)) judge_idle(outcome, node);
    judge_quota(outcome, node);
    for (const CoreReport* report : node) {
      judge_rank(outcome, *report);
      fewest = std::min(fewest, report->facts.processors.size());
      most = std::max(most, report->facts.processors.size());
    }
  }
  outcome.summary =
      fmt::format("each rank may use {} processor{}",
                  fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most),
                  most == 1 ? "" : "s");
  return outcome;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr dnnl_dim_t kSide = 512;
constexpr std::size_t kCopied = std::size_t{16} << 20;  // larger than the private caches of a core
constexpr double kSlow = 0.75;                          // fraction of the fastest rank's speed
constexpr double kMinUsefulShare = 1.0 / 3;

SpeedFacts multiply(int cores, double seconds) {
  set_thread_budget(cores);
  const std::vector<float> left(kSide * kSide, 1.0F / 3);
  const std::vector<float> right(kSide * kSide, 3.0F);
  std::vector<float> product(kSide * kSide);
  const auto begin = Clock::now();
  const double used_before = processor_seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double best = shortest_seconds(seconds, [&] {
    dnnl_sgemm('N', 'N', kSide, kSide, kSide, 1, left.data(), kSide, right.data(), kSide, 0,
               product.data(), kSide);
  });
  const double used = processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - used_before;
  constexpr double kOperations = 2.0 * kSide * kSide * kSide;
  return {.cores = cores,
          .gigaflops = kOperations / best / 1e9,
          .copied_gigabytes = 0,
          .share_of_cores = std::min(1.0, used / (seconds_since(begin) * cores))};
}

double copy(double seconds) {
  const std::vector<char> from(kCopied, 1);
  std::vector<char> to(kCopied);
  return static_cast<double>(kCopied) / 1e9 /
         shortest_seconds(seconds, [&] { std::memcpy(to.data(), from.data(), kCopied); });
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

/// "198 to 205 GFLOP/s"; one number if both are the same when rounded.
std::string text_of(const Extent& extent, const char* unit) {
  const std::string slowest = fmt::format("{:.3g}", extent.slowest);
  const std::string fastest = fmt::format("{:.3g}", extent.fastest);
  return slowest == fastest ? fmt::format("{} {}", fastest, unit)
                            : fmt::format("{} to {} {}", slowest, fastest, unit);
}

}  // namespace

Reports<SpeedFacts> measure_speed(Ranks& ranks, double seconds) {
  constexpr const char* kCheck = "matrix-product";
  const int cores = job::share_of_cores(ranks.session());
  // All ranks measure at the same time, as in a training, so that contention between them is
  // included.
  ranks.barrier(kCheck);
  Measured<SpeedFacts> speed =
      measured_within<SpeedFacts>(ranks.limit(least_for(0.7 * seconds)),
                                  [cores, seconds] { return multiply(cores, 0.7 * seconds); });
  ranks.barrier(kCheck);
  const Measured<double> copied = measured_within<double>(
      ranks.limit(least_for(0.3 * seconds)), [seconds] { return copy(0.3 * seconds); });
  if (speed.facts && copied.facts)
    speed.facts->copied_gigabytes = *copied.facts;
  else if (speed.facts)
    speed = {.why_none = copied.why_none};
  return ranks.share<SpeedFacts>(kCheck, speed);
}

Outcome judge_product(const Reports<SpeedFacts>& reports) {
  constexpr double kAlone = 0.8;
  Outcome outcome{.check = "matrix-product"};
  add_missing(outcome, reports.missing,
              "check which programs run on that host (top) and whether it throttles (dmesg)");
  const Extent extent = extent_of(reports, &SpeedFacts::gigaflops);
  for (const auto& [place, facts] : reports.answered) {
    if (facts.gigaflops < kSlow * extent.fastest)
      outcome.add(
          {{place.rank},
           facts.gigaflops < kMinUsefulShare * extent.fastest ? Level::problem : Level::warning,
           fmt::format("multiplies at {:.3g} GFLOP/s on {} with {} core{}, the fastest "
                       "rank at {:.3g}: every step waits for the slowest",
                       facts.gigaflops, place.host, facts.cores, facts.cores == 1 ? "" : "s",
                       extent.fastest),
           "check its binding (see the check cores), other programs there (top), and its "
           "temperature and clock frequency (turbostat); or exclude the host"});
    if (facts.share_of_cores < kAlone)
      outcome.warn(place,
                   fmt::format("got at most {:.0f} % of the time of its cores on {}",
                               10 * std::ceil(10 * facts.share_of_cores), place.host),
                   "end other programs there (shown by top), or bind the ranks to other cores");
  }
  outcome.summary = text_of(extent, "GFLOP/s per rank");
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
      outcome.warn(place,
                   fmt::format("copies {:.3g} GB/s on {}, the fastest rank {:.3g}",
                               facts.copied_gigabytes, place.host, extent.fastest),
                   "bind each rank to cores and memory of one socket (mpirun --bind-to "
                   "core --map-by numa), and check which other programs run there");
  outcome.summary = text_of(extent, "GB/s per rank, all at once");
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
