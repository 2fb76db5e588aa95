#include "apps/lockstep/doctor/cores.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "lockstep/base/host.h"

namespace lockstep::apps::doctor {
namespace {

using Report = Reported<CoreFacts>;

std::string first_word(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

std::vector<int> ranks_of(const std::vector<const Report*>& reports) {
  std::vector<int> ranks;
  for (const Report* report : reports) ranks.push_back(report->place.rank);
  return ranks;
}

std::set<int> processors_of(const std::vector<const Report*>& reports) {
  std::set<int> all;
  for (const Report* report : reports) all.insert(report->facts.processors.begin(), report->facts.processors.end());
  return all;
}

std::string processor_list(const std::vector<int>& processors) {
  // The same form as that of ranks, without its noun.
  const std::string text = rank_list(processors);
  return text.empty() ? "none" : text.substr(text.find(' ') + 1);
}

/// Reports ranks of one host that share fewer processors than there are ranks. Returns whether there are any.
bool judge_sharing(Outcome& outcome, const std::vector<const Report*>& node) {
  bool found = false;
  std::map<std::vector<int>, std::vector<const Report*>> by_mask;
  for (const Report* report : node) by_mask[report->facts.processors].push_back(report);
  for (const auto& [processors, sharers] : by_mask) {
    if (processors.empty() || sharers.size() <= processors.size()) continue;
    found = true;
    const int online = sharers.front()->facts.online;
    const bool avoidable = online >= static_cast<int>(node.size());
    outcome.add(
        {.ranks = ranks_of(sharers),
         .level = avoidable ? Level::problem : Level::warning,
         .what = avoidable
                     ? fmt::format("{} ranks are bound to processor {} of {}, which has {} processors", sharers.size(),
                                   processor_list(processors), sharers.front()->place.host, online)
                     : fmt::format("{} ranks share the {} of {}", sharers.size(),
                                   online == 1 ? "one processor" : fmt::format("{} processors", online),
                                   sharers.front()->place.host),
         .remedy = avoidable ? "mpirun --map-by core --bind-to core, or --bind-to none; and do not run it under taskset"
                             : "start fewer ranks on each host: mpirun -np, or slots in the hostfile"});
  }
  return found;
}

/// The mpirun options that bind each rank to `processors` hardware threads.
std::string binding(int processors) {
  return fmt::format("mpirun --use-hwthread-cpus --map-by slot:PE={}", processors);
}

/// Reports processors of one host that no rank may use.
void judge_idle(Outcome& outcome, const std::vector<const Report*>& node) {
  const auto used = static_cast<int>(processors_of(node).size());
  const int online = node.front()->facts.online;
  if (used == 0 || 2 * used >= online) return;
  outcome.add(
      {.ranks = ranks_of(node),
       .level = Level::warning,
       .what = fmt::format("the ranks of {} may use {} of its {} processors", node.front()->place.host, used, online),
       .remedy = fmt::format("{}, or --bind-to none", binding(std::max(1, online / static_cast<int>(node.size()))))});
}

/// Reports ranks of one host whose CPU quota is smaller than their set of processors. Ranks with the same quota are
/// assumed to be in one control group, and share it.
void judge_quota(Outcome& outcome, const std::vector<const Report*>& node) {
  std::map<double, std::vector<const Report*>> by_quota;
  for (const Report* report : node)
    if (report->facts.quota > 0) by_quota[report->facts.quota].push_back(report);
  for (const auto& [quota, sharers] : by_quota) {
    const std::size_t processors = processors_of(sharers).size();
    if (quota >= 0.9 * static_cast<double>(processors)) continue;
    outcome.add({.ranks = ranks_of(sharers),
                 .level = Level::warning,
                 .what = fmt::format("the control group limits the ranks of {} to the time of {:.1f} processors, and "
                                     "they run on {}: they are throttled when the quota is used up",
                                     sharers.front()->place.host, quota, processors),
                 .remedy = "request whole processors from the container or batch system, at least one per rank "
                           "(--cpus, cpu.max), or bind the ranks to as many processors as the quota allows"});
  }
}

void judge_rank(Outcome& outcome, const Report& report) {
  const CoreFacts& facts = report.facts;
  const auto cores = static_cast<int>(facts.processors.size());
  if (facts.threads > cores)
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::warning,
                 .what = fmt::format("OMP_NUM_THREADS requests {} threads on {} processors", facts.threads, cores),
                 .remedy = "unset OMP_NUM_THREADS, or give each rank as many processors: " + binding(facts.threads)});
  // With the drivers intel_pstate and amd-pstate, the governor powersave reaches full speed under load.
  if (facts.governor == "powersave" && !facts.driver.starts_with("intel_pstate") &&
      !facts.driver.starts_with("amd-pst"))
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::warning,
                 .what = fmt::format("the processors of {} run at their lowest frequency (governor powersave)",
                                     report.place.host),
                 .remedy = "cpupower frequency-set -g performance, as root"});
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
  add_missing(outcome, reports.missing, "log in to that host and check what its processes are waiting for");
  std::map<int, std::vector<const Report*>> nodes;
  for (const Report& report : reports.answered) nodes[report.place.node].push_back(&report);
  std::size_t fewest = reports.answered.empty() ? 0 : reports.answered.front().facts.processors.size();
  std::size_t most = fewest;
  for (const auto& [number, node] : nodes) {
    if (!judge_sharing(outcome, node)) judge_idle(outcome, node);
    judge_quota(outcome, node);
    for (const Report* report : node) {
      judge_rank(outcome, *report);
      fewest = std::min(fewest, report->facts.processors.size());
      most = std::max(most, report->facts.processors.size());
    }
  }
  outcome.summary =
      fmt::format("each rank may use {} processor{}",
                  fewest == most ? std::to_string(most) : fmt::format("{} to {}", fewest, most), most == 1 ? "" : "s");
  return outcome;
}

}  // namespace lockstep::apps::doctor
