#include "apps/lockstep/doctor/devices.h"

#include <map>

#include "lockstep/device/gpu.h"

namespace lockstep::apps::doctor {
namespace {

constexpr double kUsedShare = 0.1;  // of a GPU's memory, used by other programs

/// "8 x NVIDIA H100"; "no GPU".
std::string describe(const std::vector<std::string>& gpus) {
  std::map<std::string, int> counts;
  for (const std::string& name : gpus) ++counts[name];
  std::string text;
  for (const auto& [name, count] : counts) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text.empty() ? "no GPU" : text;
}

void judge_health(Outcome& outcome, const Place& place, std::size_t index, const device::GpuHealth& gpu) {
  const auto add = [&](Level level, const std::string& what, const std::string& remedy) {
    outcome.add({.ranks = {place.rank},
                 .level = level,
                 .what = fmt::format("GPU {} of {} ({}) {}", index, place.host, gpu.uuid, what),
                 .remedy = remedy});
  };
  if (gpu.uncorrected_errors > 0)
    add(Level::problem, fmt::format("has {} uncorrected ECC errors", gpu.uncorrected_errors),
        "end its processes and reset it: nvidia-smi --gpu-reset; replace it if the errors occur again");
  if (gpu.wants_reset)
    add(Level::problem, "has memory rows that wait for remapping",
        "end its processes and reset it: nvidia-smi --gpu-reset");
  if (gpu.lacks_spare_rows) add(Level::problem, "could not remap a bad memory row", "replace the GPU");
  if (gpu.is_slowed)
    add(Level::warning, "is throttled by its hardware",
        "check its temperature, fans and power supply: nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER");
  if (static_cast<double>(gpu.used_bytes) > kUsedShare * static_cast<double>(gpu.total_bytes))
    add(Level::warning,
        fmt::format("has {} of {} in use already", human_bytes(static_cast<double>(gpu.used_bytes)),
                    human_bytes(static_cast<double>(gpu.total_bytes))),
        "find the processes that use it with nvidia-smi, and end those that are left over");
}

void judge_rank(Outcome& outcome, const Reported<DeviceFacts>& report, const Reported<DeviceFacts>& first) {
  const DeviceFacts& facts = report.facts;
  if (facts.gpus.empty() && !facts.health.empty())
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::warning,
                 .what = fmt::format("{} has {} GPUs that this program cannot use: {}", report.place.host,
                                     facts.health.size(), facts.unavailable),
                 .remedy = facts.has_cuda ? "install a driver that supports this program's CUDA version, and check "
                                            "CUDA_VISIBLE_DEVICES"
                                          : "install a Lockstep that was compiled with -DLOCKSTEP_CUDA=ON"});
  if (describe(facts.gpus) != describe(first.facts.gpus))
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::warning,
                 .what = fmt::format("sees {}, and rank {} sees {}", describe(facts.gpus), first.place.rank,
                                     describe(first.facts.gpus)),
                 .remedy = "use hosts of one kind and the same CUDA_VISIBLE_DEVICES for all ranks, or set --devices"});
}

}  // namespace

DeviceFacts measure_devices() {
  DeviceFacts facts;
  for (const device::GpuInfo& gpu : device::list_gpus()) {
    facts.gpus.push_back(gpu.name);
    facts.uuids.push_back(gpu.uuid);
  }
  facts.unavailable = device::gpu_unavailable_reason();
  facts.has_cuda = device::cuda_built_version() != "absent";
  facts.health = device::list_gpu_health();
  return facts;
}

std::set<int> nodes_with_gpus(const Reports<DeviceFacts>& reports) {
  std::set<int> nodes;
  for (const auto& [place, facts] : reports.answered)
    if (!facts.gpus.empty() || !facts.health.empty()) nodes.insert(place.node);
  return nodes;
}

Outcome judge_devices(const Reports<DeviceFacts>& reports) {
  Outcome outcome{.check = "devices"};
  add_missing(outcome, reports.missing,
              "a GPU or its driver does not respond: look for Xid errors in dmesg, and restart the host");
  if (reports.answered.empty()) return outcome;
  const auto& first = reports.answered.front();
  // If a launcher sets CUDA_VISIBLE_DEVICES for each rank, the ranks of a node see different GPUs.
  std::map<std::pair<int, std::vector<std::string>>, int> ranks_of_gpus;
  for (const auto& report : reports.answered) {
    ++ranks_of_gpus[{report.place.node, report.facts.uuids}];
    judge_rank(outcome, report, first);
    if (report.place.local_rank != 0) continue;
    for (std::size_t i = 0; i < report.facts.health.size(); ++i)
      judge_health(outcome, report.place, i, report.facts.health[i]);
  }
  for (const auto& report : reports.answered) {
    const auto gpus = static_cast<int>(report.facts.uuids.size());
    const int ranks = ranks_of_gpus[{report.place.node, report.facts.uuids}];
    if (gpus == 0 || ranks <= gpus) continue;
    outcome.add({.ranks = {report.place.rank},
                 .level = Level::problem,
                 .what = fmt::format("{} ranks of {} see the same {} GPU{}", ranks, report.place.host, gpus,
                                     gpus == 1 ? "" : "s"),
                 .remedy = "start one rank for each GPU: mpirun -np, or slots in the hostfile; or let them share GPUs "
                           "with --share-gpus, or train with --devices cpu:0"});
  }
  outcome.summary = first.facts.gpus.empty()
                        ? "no GPU: replicas compute on the CPU"
                        : fmt::format("{} for rank {}", describe(first.facts.gpus), first.place.rank);
  return outcome;
}

}  // namespace lockstep::apps::doctor
