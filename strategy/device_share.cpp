#include "strategy/device_share.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "device/cpu.h"
#include "device/error.h"
#include "device/gpu.h"
#include "device/json.h"

namespace lockstep::strategy {
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
  return fmt::format("the {} ranks of {} see {}", ranks, claim.host, claim.gpus.size());
}

DeviceClaim claim_of(const Session& session, std::string_view list) {
  DeviceClaim claim{session.node(), device::host_name(), std::string(list), {}, {}};
  if (!is_open(list)) return claim;
  for (const device::GpuInfo& gpu : device::list_gpus()) claim.gpus.push_back(gpu.uuid);
  if (claim.gpus.empty()) claim.no_gpu = device::gpu_unavailable_reason();
  return claim;
}

std::vector<DeviceClaim> gather(const Session& session, const DeviceClaim& mine) {
  const nlohmann::json text = {mine.node, mine.host, mine.devices, mine.gpus, mine.no_gpu};
  std::vector<DeviceClaim> claims;
  for (const std::string& one : session.all_gather(dump_json(text))) {
    const nlohmann::json claim = parse_json(one, ErrorCategory::communication, "device claims");
    claims.push_back({claim[0].get<int>(), claim[1].get<std::string>(), claim[2].get<std::string>(),
                      claim[3].get<std::vector<std::string>>(), claim[4].get<std::string>()});
  }
  return claims;
}

}  // namespace

std::vector<Device> share_of_devices(const std::vector<DeviceClaim>& claims, int rank, bool share_gpus) {
  const DeviceClaim& mine = claims[static_cast<std::size_t>(rank)];
  const bool takes_all = mine.devices == "gpu:all";
  const int gpus = static_cast<int>(mine.gpus.size());
  if (gpus == 0 && takes_all)
    throw Error(ErrorCategory::device, kOption, fmt::format("gpu:all needs a GPU on {}", mine.host), mine.no_gpu);
  if (gpus == 0) return {Device{}};
  const int ranks = static_cast<int>(std::count(claims.begin(), claims.end(), mine));
  const int place = static_cast<int>(std::count(claims.begin(), claims.begin() + rank, mine));
  if (gpus < ranks && share_gpus) return gpus_from(place % gpus, 1);
  if (gpus < ranks)
    throw Error(ErrorCategory::device, kOption,
                "needed a GPU for each rank of a node: start fewer ranks there, or let them share with --share-gpus",
                seen_by(mine, ranks));
  if (ranks == 1) return gpus_from(0, gpus);
  if (!takes_all) return gpus_from(place, 1);
  if (gpus % ranks != 0)
    throw Error(ErrorCategory::device, kOption,
                "gpu:all needs GPUs that the ranks of a node divide evenly: start another number of ranks, or give "
                "each rank one GPU with auto",
                seen_by(mine, ranks));
  return gpus_from(place * (gpus / ranks), gpus / ranks);
}

std::vector<Device> choose_devices(const Session& session, std::string_view list, bool share_gpus) {
  const std::vector<DeviceClaim> claims = gather(session, claim_of(session, list));
  std::vector<Device> mine;
  for (int rank = 0; rank < session.size(); ++rank) {
    if (!is_open(claims[static_cast<std::size_t>(rank)].devices)) continue;
    std::vector<Device> share = share_of_devices(claims, rank, share_gpus);
    if (rank == session.rank()) mine = std::move(share);
  }
  return is_open(list) ? mine : device::parse_devices(list);
}

}  // namespace lockstep::strategy
