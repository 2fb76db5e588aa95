#include "lockstep/job/placement/device_share.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/device_list.h"
#include "lockstep/device/gpu.h"
#include "lockstep/job/agreement.h"

namespace lockstep::inline v0::job {

// The format in which ranks exchange claims.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CoreClaim, node, quota, processors)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeviceClaim, node, host, devices, gpus, no_gpu)

namespace {

std::string processors_of_this_process() {
  const std::vector<int> processors = allowed_processors();
  if (processors.empty()) return "1";
  std::string text(static_cast<std::size_t>(processors.back()) + 1, '0');
  for (const int processor : processors) text[processor] = '1';
  return text;
}

}  // namespace

int share_of_cores(const std::vector<CoreClaim>& claims, int rank) {
  const CoreClaim& mine = claims[rank];
  const auto same_cores = std::ranges::count_if(claims, [&](const CoreClaim& claim) {
    return claim.node == mine.node && claim.processors == mine.processors;
  });
  const auto cores = static_cast<int>(std::ranges::count(mine.processors, '1') / same_cores);
  if (mine.quota <= 0) return std::max(1, cores);
  const auto same_quota = std::ranges::count_if(claims, [&](const CoreClaim& claim) {
    return claim.node == mine.node && claim.quota == mine.quota;
  });
  return std::max(1,
                  std::min(cores, static_cast<int>(mine.quota / static_cast<double>(same_quota))));
}

int share_of_cores(const Session& session) {
  const CoreClaim mine{session.node(), processors_of_this_process(), processor_quota()};
  return share_of_cores(Agreement(session).gather_values("core claims", mine), session.rank());
}

namespace {

using device::Device;
using device::DeviceKind;

constexpr std::string_view kOption = "devices";

bool is_open(std::string_view list) { return list == "auto" || list == "gpu:all"; }

std::vector<Device> gpus_from(int first, int count) {
  std::vector<Device> gpus;
  for (int i = 0; i < count; ++i) gpus.push_back({DeviceKind::gpu, first + i});
  return gpus;
}

std::string seen_by(const DeviceClaim& claim, int ranks) {
  return fmt::format("the {} ranks on {} see {}", ranks, claim.host, claim.gpus.size());
}

DeviceClaim claim_of(const Session& session, std::string_view list) {
  DeviceClaim claim{session.node(), host_name(), std::string(list), {}, {}};
  if (!is_open(list)) return claim;
  for (const device::GpuInfo& gpu : device::list_gpus()) claim.gpus.push_back(gpu.uuid);
  if (claim.gpus.empty()) claim.no_gpu = device::gpu_unavailable_reason();
  return claim;
}

}  // namespace

std::vector<Device> share_of_devices(const std::vector<DeviceClaim>& claims, int rank,
                                     bool share_gpus) {
  const DeviceClaim& mine = claims[rank];
  const bool uses_all = mine.devices == "gpu:all";
  const int gpus = static_cast<int>(mine.gpus.size());
  if (gpus == 0 && uses_all)
    throw Error(ErrorCategory::device, kOption,
                fmt::format("expected a GPU on {} for gpu:all", mine.host), mine.no_gpu);
  if (gpus == 0) return {Device{}};
  const int ranks = static_cast<int>(std::count(claims.begin(), claims.end(), mine));
  const int place = static_cast<int>(std::count(claims.begin(), claims.begin() + rank, mine));
  if (gpus < ranks && share_gpus) return gpus_from(place % gpus, 1);
  if (gpus < ranks)
    throw Error(ErrorCategory::device, kOption,
                "expected a GPU for each rank of a node: start fewer ranks there, or let them "
                "share with --share-gpus",
                seen_by(mine, ranks));
  if (ranks == 1) return gpus_from(0, gpus);
  if (!uses_all) return gpus_from(place, 1);
  if (gpus % ranks != 0)
    throw Error(ErrorCategory::device, kOption,
                "expected GPUs that the ranks of a node divide evenly for gpu:all: start a "
                "different number of ranks, or use auto to give each rank one GPU",
                seen_by(mine, ranks));
  return gpus_from(place * (gpus / ranks), gpus / ranks);
}

std::vector<Device> choose_devices(const Session& session, std::string_view list, bool share_gpus) {
  const std::vector<DeviceClaim> claims =
      Agreement(session).gather_values("device claims", claim_of(session, list));
  std::vector<Device> mine;
  for (int rank = 0; rank < session.size(); ++rank) {
    if (!is_open(claims[rank].devices)) continue;
    std::vector<Device> share = share_of_devices(claims, rank, share_gpus);
    if (rank == session.rank()) mine = std::move(share);
  }
  return is_open(list) ? mine : device::parse_devices(list);
}

}  // namespace lockstep::inline v0::job
