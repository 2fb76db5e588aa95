#include "lockstep/job/device_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/base/json.h"
#include "lockstep/device/device_list.h"
#include "lockstep/device/gpu.h"

namespace lockstep::job {
namespace {

std::string processors_of_this_process() {
  const std::vector<int> processors = allowed_processors();
  if (processors.empty()) return "1";
  std::string text(static_cast<std::size_t>(processors.back()) + 1, '0');
  for (const int processor : processors) text[static_cast<std::size_t>(processor)] = '1';
  return text;
}

CoreClaim parse_claim(const std::string& text) {
  CoreClaim claim;
  std::istringstream(text) >> claim.node >> claim.quota >> claim.processors;
  return claim;
}

}  // namespace

int share_of_cores(const std::vector<CoreClaim>& claims, int rank) {
  const CoreClaim& mine = claims[static_cast<std::size_t>(rank)];
  const auto same_cores = std::ranges::count_if(
      claims, [&](const CoreClaim& claim) { return claim.node == mine.node && claim.processors == mine.processors; });
  const auto cores = static_cast<int>(std::ranges::count(mine.processors, '1') / same_cores);
  if (mine.quota <= 0) return std::max(1, cores);
  const auto same_quota = std::ranges::count_if(
      claims, [&](const CoreClaim& claim) { return claim.node == mine.node && claim.quota == mine.quota; });
  return std::max(1, std::min(cores, static_cast<int>(mine.quota / static_cast<double>(same_quota))));
}

int share_of_cores(const Session& session) {
  const std::string mine = fmt::format("{} {} {}", session.node(), processor_quota(), processors_of_this_process());
  std::vector<CoreClaim> claims;
  for (const std::string& text : session.all_gather(mine)) claims.push_back(parse_claim(text));
  return share_of_cores(claims, session.rank());
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
  return fmt::format("the {} ranks of {} see {}", ranks, claim.host, claim.gpus.size());
}

DeviceClaim claim_of(const Session& session, std::string_view list) {
  DeviceClaim claim{session.node(), host_name(), std::string(list), {}, {}};
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

}  // namespace lockstep::job
