#include "apps/lockstep/doctor/devices.h"

#include <fmt/ranges.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/shared_segment.h"
#include "lockstep/base/text.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::apps::doctor {
namespace {

constexpr double kUsedShare = 0.1;  // fraction of a GPU's memory that other programs use

/// "8 x NVIDIA H100"; "no GPU".
std::string describe(const std::vector<std::string>& gpus) {
  std::map<std::string, int> counts;
  for (const std::string& name : gpus) ++counts[name];
  std::string text;
  for (const auto& [name, count] : counts)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text.empty() ? "no GPU" : text;
}

void judge_health(Outcome& outcome, const Place& place, std::size_t index,
                  const device::GpuHealth& gpu) {
  const auto add = [&](Level level, const std::string& what, const std::string& remedy) {
    outcome.add({{place.rank},
                 level,
                 fmt::format("GPU {} of {} ({}) {}", index, place.host, gpu.uuid, what),
                 remedy});
  };
  if (gpu.uncorrected_errors > 0)
    add(Level::problem, fmt::format("has {} uncorrected ECC errors", gpu.uncorrected_errors),
        "end its processes and reset it: nvidia-smi --gpu-reset; replace it if the errors occur "
        "again");
  if (gpu.needs_reset)
    add(Level::problem, "has memory rows that wait for remapping",
        "end its processes and reset it: nvidia-smi --gpu-reset");
  if (gpu.lacks_spare_rows)
    add(Level::problem, "could not remap a bad memory row", "replace the GPU");
  if (gpu.is_slowed)
    add(Level::warning, "is throttled by its hardware",
        "check its temperature, fans and power supply: nvidia-smi -q -d "
        "PERFORMANCE,TEMPERATURE,POWER");
  if (static_cast<double>(gpu.used_bytes) > kUsedShare * static_cast<double>(gpu.total_bytes))
    add(Level::warning,
        fmt::format("has {} of {} in use already", human_bytes(gpu.used_bytes),
                    human_bytes(gpu.total_bytes)),
        "find the processes that use it with nvidia-smi, and end those that are left over");
}

void judge_rank(Outcome& outcome, const Reported<DeviceFacts>& report,
                const Reported<DeviceFacts>& first) {
  const DeviceFacts& facts = report.facts;
  if (facts.gpus.empty() && !facts.health.empty())
    outcome.warn(report.place,
                 fmt::format("{} has {} GPUs that this program cannot use: {}", report.place.host,
                             facts.health.size(), facts.unavailable),
                 facts.has_cuda
                     ? "install a driver that supports this program's CUDA version, and check "
                       "CUDA_VISIBLE_DEVICES"
                     : "install a Lockstep that was compiled with -DLOCKSTEP_CUDA=ON");
  if (describe(facts.gpus) != describe(first.facts.gpus))
    outcome.warn(report.place,
                 fmt::format("sees {}, and rank {} sees {}", describe(facts.gpus), first.place.rank,
                             describe(first.facts.gpus)),
                 "use hosts of one kind and the same CUDA_VISIBLE_DEVICES for all ranks, "
                 "or set --devices");
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
  add_missing(
      outcome, reports.missing,
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
    outcome.fail(report.place,
                 fmt::format("{} ranks of {} see the same {}", ranks, report.place.host,
                             counted(gpus, "GPU")),
                 "start one rank for each GPU: mpirun -np, or slots in the hostfile; or "
                 "let them share GPUs "
                 "with --share-gpus, or train with --devices cpu:0");
  }
  outcome.summary =
      first.facts.gpus.empty()
          ? "no GPU: replicas compute on the CPU"
          : fmt::format("{} for rank {}", describe(first.facts.gpus), first.place.rank);
  return outcome;
}

namespace {

constexpr const char* kMemoryCheck = "shared-memory";
constexpr double kMegabyte = 1e6;
constexpr std::int64_t kShmOfRank = 8'000'000;  // approximate use of MPI's own transport
constexpr std::int64_t kShmOfHost = 60'000'000;
constexpr std::int64_t kShmOfGpus =
    128'000'000;  // per host: the 64 MiB default of containers is too small for NCCL
constexpr std::int64_t kMemoryOfRank = 1'000'000'000;

/// Maps the memory. Returns the error; empty on success.
std::string map_failure(const OfferedSegment& offered) {
  try {
    SharedSegment::open(offered.handle);
    return "";
  } catch (const Error& error) {
    return error.message().actual;
  }
}

void map_others(const Place& mine, const Reports<OfferedSegment>& offers, MemoryFacts& facts) {
  for (const auto& [place, offered] : offers.answered) {
    if (place.node != mine.node || place.rank == mine.rank || !offered.failure.empty()) continue;
    const std::string why = map_failure(offered);
    if (why.empty()) continue;
    if (facts.why.empty()) facts.why = why;
    facts.unseen.push_back(place.rank);
  }
}

/// Suffix of a remedy.
std::string consequence(bool wanted) {
  return wanted ? "" : "; without it, training uses slower messages";
}

std::string remedy_of(const std::string& why, bool wanted) {
  if (why == std::strerror(EACCES) || why == std::strerror(EPERM))
    return "start all ranks as the same user, and allow them to access /proc (hidepid=0) and each "
           "other's files there "
           "(--cap-add SYS_PTRACE, kernel.yama.ptrace_scope=0)" +
           consequence(wanted);
  return "start the ranks of a host in one container, or in containers that share processes "
         "(--pid=host), with /proc "
         "mounted" +
         consequence(wanted);
}

void judge_offer(Outcome& outcome, const Reported<MemoryFacts>& report, bool wanted) {
  if (report.facts.offer_failure.empty()) return;
  outcome.add(
      {{report.place.rank},
       wanted ? Level::problem : Level::warning,
       fmt::format("cannot create shared memory: {}", report.facts.offer_failure),
       "allow memfd_create in the container's seccomp profile, and increase its memory limit "
       "(--memory, memory.max)" +
           consequence(wanted)});
}

void judge_shm(Outcome& outcome, const Reported<MemoryFacts>& report, int ranks_of_host,
               bool has_gpus) {
  const MemoryFacts& facts = report.facts;
  const std::string remedy =
      "increase it: --shm-size=1g or --ipc=host for a container, otherwise mount -o "
      "remount,size=1g /dev/shm; and "
      "remove files of earlier jobs there";
  if (facts.shm_bytes < 0) {
    outcome.warn(report.place,
                 fmt::format("{} has no /dev/shm, which MPI and NCCL use", report.place.host),
                 "mount -t tmpfs tmpfs /dev/shm, as root");
    return;
  }
  const std::int64_t needed =
      std::max(has_gpus ? kShmOfGpus : kShmOfHost, kShmOfRank * ranks_of_host);
  if (facts.shm_free_bytes >= needed) return;
  const bool hopeless = facts.shm_free_bytes < kShmOfRank * ranks_of_host / 2;
  outcome.add(
      {{report.place.rank},
       hopeless ? Level::problem : Level::warning,
       fmt::format("/dev/shm of {} has {:.0f} of {:.0f} MB free; MPI and NCCL may need {:.0f} MB",
                   report.place.host, static_cast<double>(facts.shm_free_bytes) / kMegabyte,
                   static_cast<double>(facts.shm_bytes) / kMegabyte,
                   static_cast<double>(needed) / kMegabyte),
       remedy});
}

}  // namespace

Reports<MemoryFacts> measure_memory(Ranks& ranks) {
  SharedSegment mine;  // must exist until the other ranks have mapped it
  OfferedSegment offered;
  try {
    mine = SharedSegment::create(1);
    offered.handle = mine.handle();
  } catch (const Error& error) {
    offered.failure = error.message().actual;
  }
  const auto offers = ranks.share<OfferedSegment>(kMemoryCheck, {.facts = offered});
  return ranks.measure<MemoryFacts>(kMemoryCheck, [place = ranks.mine(), offers, offered] {
    MemoryFacts facts{.offer_failure = offered.failure};
    map_others(place, offers, facts);
    const std::int64_t available = available_host_memory();
    if (available < std::numeric_limits<std::int64_t>::max()) facts.available_bytes = available;
    struct statvfs shm {};
    if (::statvfs("/dev/shm", &shm) == 0) {
      facts.shm_bytes = static_cast<std::int64_t>(shm.f_blocks * shm.f_frsize);
      facts.shm_free_bytes = static_cast<std::int64_t>(shm.f_bavail * shm.f_frsize);
    }
    return facts;
  });
}

Outcome judge_shared_memory(const Reports<MemoryFacts>& reports, bool wanted,
                            const std::set<int>& nodes_with_gpus) {
  Outcome outcome{.check = kMemoryCheck};
  add_missing(outcome, reports.missing, kCheckTheHost);
  std::map<int, int> ranks_of_node;
  for (const auto& report : reports.answered) ++ranks_of_node[report.place.node];
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& report : reports.answered) {
    judge_offer(outcome, report, wanted);
    if (!report.facts.unseen.empty())
      outcome.add({{report.place.rank},
                   wanted ? Level::problem : Level::warning,
                   fmt::format("cannot map the memory of {} of its host: {}",
                               counted(report.facts.unseen.size(), "other rank"), report.facts.why),
                   remedy_of(report.facts.why, wanted)});
    if (report.place.local_rank == 0)
      judge_shm(outcome, report, ranks_of_node[report.place.node],
                nodes_with_gpus.contains(report.place.node));
    least = std::min(least, report.facts.shm_free_bytes);
  }
  const bool ok = outcome.level() == Level::ok;
  outcome.summary = fmt::format("{}; /dev/shm has {} free",
                                ok ? "ranks of a host can map each other's memory" : "see below",
                                least < 0 ? "nothing" : human_bytes(least));
  return outcome;
}

Outcome judge_memory(const Reports<MemoryFacts>& reports) {
  Outcome outcome{.check = "memory"};
  std::map<int, int> ranks_of_node;
  for (const auto& report : reports.answered) ++ranks_of_node[report.place.node];
  std::optional<std::int64_t> least;
  std::set<std::string> unknown;
  for (const auto& [place, facts] : reports.answered) {
    if (facts.available_bytes < 0) {
      unknown.insert(place.host);
      continue;
    }
    const std::int64_t bytes = facts.available_bytes / ranks_of_node[place.node];
    least = std::min(least.value_or(bytes), bytes);
    if (place.local_rank != 0 || bytes >= kMemoryOfRank) continue;
    outcome.warn(place,
                 fmt::format("{} has {} of free memory for each of its ranks", place.host,
                             human_bytes(bytes)),
                 "end other programs there, start fewer ranks, or request more memory "
                 "from the container or "
                 "batch system (--memory, --mem)");
  }
  if (least) outcome.summary = fmt::format("at least {} for each rank", human_bytes(*least));
  if (!unknown.empty()) {
    if (least) outcome.summary += "; ";
    outcome.summary += fmt::format("unknown on {}", fmt::join(unknown, ", "));
  }
  return outcome;
}

}  // namespace lockstep::inline v0::apps::doctor
