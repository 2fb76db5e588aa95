#include "lockstep/allreduce/groups/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "lockstep/allreduce/algorithm/gpu/in_gpu.h"
#include "lockstep/allreduce/algorithm/gpu/nccl.h"
#include "lockstep/allreduce/algorithm/gpu/staged.h"
#include "lockstep/allreduce/algorithm/hierarchical.h"
#include "lockstep/allreduce/algorithm/in_process.h"
#include "lockstep/allreduce/algorithm/message_group.h"
#include "lockstep/allreduce/algorithm/mpi_library.h"
#include "lockstep/allreduce/algorithm/multi_worker.h"
#include "lockstep/allreduce/algorithm/shared_memory.h"
#include "lockstep/allreduce/cuda/gpu_work.h"
#include "lockstep/allreduce/groups/ranks.h"
#include "lockstep/allreduce/groups/route.h"
#include "lockstep/allreduce/groups/topology.h"
#include "lockstep/allreduce/member/group_member.h"
#include "lockstep/allreduce/member/one_member.h"
#include "lockstep/allreduce/transport/job_texts.h"
#include "lockstep/allreduce/transport/transport.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::allreduce {
namespace {

constexpr std::string_view kOption = "--allreduce";

// Throws Error (input) unless `route` passes `filter`. `where` follows the names of those that do;
// `suffix` follows the name of the one that does not.
void check_route(Route route, const RouteFilter& filter, std::string_view where,
                 const std::string& suffix = "") {
  if (filter(info_of(route))) return;
  throw Error(ErrorCategory::input, kOption,
              fmt::format("expected {} {}", route_names(filter), where),
              fmt::format("got {}{}", to_string(route), suffix));
}

bool connects_nodes(const RouteInfo& row) { return row.ranks && row.medium != Medium::memory; }

std::shared_ptr<MessageGroup> make_between_ranks(const Communicator& ranks, Route route) {
  require_devices(route, {device::Device{}});
  check_route(route, &RouteInfo::ranks, "between ranks",
              fmt::format(" for {} ranks", ranks.size()));
  std::optional<Topology> topology;
  if (route == Route::automatic || info_of(route).medium != Medium::messages)
    topology.emplace(ranks);
  if (route == Route::automatic) route = topology->candidates().front();
  if (topology && topology->nodes() > 1)
    check_route(route, connects_nodes, "between nodes", " for ranks of several nodes");
  std::shared_ptr<Transport> transport = ranks.impl()->transport()->duplicate();
  switch (route) {
    case Route::shared_memory:
      return make_shared_memory(std::move(transport), ranks);
    case Route::ring:
      return make_ring_of(std::move(transport));
    case Route::hierarchical:
      return make_hierarchical(std::move(transport), topology->node());
    case Route::mpi:
      if (!is_over_mpi(ranks))
        throw Error(ErrorCategory::input, kOption, "expected ranks that mpirun started for mpi",
                    "their messages go over tcp");
      return make_mpi_library(std::move(transport));
    case Route::automatic:
    case Route::in_process:
    case Route::nccl:
    case Route::staged:
      break;
  }
  LOCKSTEP_CHECK(false && "a route between ranks that is not built here");
}

std::vector<Communicator> handles(std::vector<std::shared_ptr<GroupMember>> members) {
  std::vector<Communicator> group;
  for (auto& member : members) group.emplace_back(std::move(member));
  return group;
}

}  // namespace

std::vector<Communicator> make_in_process_group(int size, Route route) {
  LOCKSTEP_CHECK_OP(size, >, 0);
  check_route(route, &RouteInfo::process, "within one process");
  if (size == 1) return handles({make_one_member()});
  return handles(make_in_process(size));
}

Communicator make_rank_group(const Communicator& ranks, Route route) {
  if (ranks.size() == 1) return Communicator(make_one_member());
  return Communicator(make_between_ranks(ranks, route));
}

std::vector<Communicator> make_multi_worker_group(const Communicator& ranks, int local_replicas,
                                                  Route route) {
  LOCKSTEP_CHECK_OP(local_replicas, >, 0);
  const std::vector<int> replicas = gather_values(ranks, local_replicas);
  if (replicas.size() == 1)
    return make_in_process_group(local_replicas, info_of(route).process ? route : Route::automatic);
  auto between = make_between_ranks(ranks, route);
  // If all ranks have one replica, each is a plain member. Otherwise a rank with one replica must
  // use the protocol of the others too.
  if (std::ranges::all_of(replicas, [](int count) { return count == 1; }))
    return {Communicator(std::move(between))};
  return handles(make_multi_worker(std::move(between), replicas));
}

namespace {

using device::Device;
using device::DeviceKind;
using Members = std::vector<std::shared_ptr<GroupMember>>;

constexpr std::string_view kDevices = "devices";

bool is_on_cpu(const Device& device) { return device.kind == DeviceKind::cpu; }

std::string list_of(const std::vector<Device>& devices) {
  std::string list;
  for (const Device& device : devices)
    list += (list.empty() ? "" : ", ") + device::to_string(device);
  return list;
}

Members members_of(const std::vector<Communicator>& group) {
  Members members;
  for (const Communicator& member : group) members.push_back(member.impl());
  return members;
}

[[noreturn]] void refuse_mixture(const std::string& found) {
  throw Error(ErrorCategory::input, kOption, "expected all replicas on the CPU or all on GPUs",
              fmt::format("got {}", found));
}

void check_available(const std::vector<Device>& gpus) {
  const int count = static_cast<int>(device::list_gpus().size());
  for (const Device& gpu : gpus)
    if (gpu.index >= count)
      throw Error(ErrorCategory::device, "devices",
                  fmt::format("expected {}", device::to_string(gpu)),
                  count == 0 ? device::gpu_unavailable_reason()
                             : fmt::format("this process sees {} GPUs", count));
}

Members make_on_gpus(const Members& hosts, const std::vector<Device>& gpus, Route route) {
  const std::set<Device> distinct(gpus.begin(), gpus.end());
  const bool is_nccl_of_one = route == Route::nccl && gpus.size() == 1;
  if (distinct.size() == 1 && !is_nccl_of_one) {
    if (gpus.size() > gpu::kMaxMembers)
      throw Error(ErrorCategory::input, kOption,
                  fmt::format("expected at most {} replicas per GPU", gpu::kMaxMembers),
                  fmt::format("got {}", gpus.size()));
    return make_in_gpu(hosts, gpus.front());
  }
  if (distinct.size() < gpus.size())
    throw Error(ErrorCategory::input, kOption,
                "expected a GPU for each replica, or one GPU for all",
                fmt::format("got {}", list_of(gpus)));
  return make_nccl(hosts, gpus, Communicator(make_one_member()));
}

// The data that ranks exchange about a replica. A shared GPU has the same UUID, even if its index
// differs between processes.
struct GroupPlace {
  int rank = 0;
  std::string device;  // "gpu:0"
  std::string host;
  std::string uuid;  // empty on the CPU

  bool shares_gpu_with(const GroupPlace& other) const {
    return uuid == other.uuid && host == other.host;
  }
};

std::string describe(const std::vector<Device>& devices, const std::vector<device::GpuInfo>& gpus) {
  nlohmann::json places = nlohmann::json::array();
  for (const Device& device : devices)
    places.push_back(
        {device::to_string(device), host_name(), is_on_cpu(device) ? "" : gpus[device.index].uuid});
  return dump_json(places);
}

std::vector<GroupPlace> places_of(const std::vector<std::string>& texts) {
  std::vector<GroupPlace> places;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    for (const nlohmann::json& place :
         parse_json(texts[rank], ErrorCategory::communication, "devices"))
      places.push_back({.rank = static_cast<int>(rank),
                        .device = place.at(0),
                        .host = place.at(1),
                        .uuid = place.at(2)});
  }
  return places;
}

void check_available_on_all(const Communicator& ranks, const std::vector<Device>& devices) {
  std::optional<ErrorMessage> problem;
  try {
    std::vector<Device> gpus = devices;
    std::erase_if(gpus, is_on_cpu);
    check_available(gpus);
  } catch (const Error& error) {
    problem = ErrorMessage{
        "devices", fmt::format("expected the devices of rank {} on {}", ranks.rank(), host_name()),
        error.what()};
  }
  raise_first(ranks, problem, ErrorCategory::device);
}

enum class DeviceMix { cpu, gpus, shared_gpus };

[[noreturn]] void throw_gpu_conflict(const GroupPlace& first, const GroupPlace& second) {
  throw Error(ErrorCategory::device, kDevices,
              "expected a GPU for each rank: let --devices auto choose, give each rank its own "
              "with --devices gpu:N or CUDA_VISIBLE_DEVICES, or allow this with --share-gpus",
              fmt::format("rank {} ({}) and rank {} ({}) on {} both have {}", first.rank,
                          first.device, second.rank, second.device, first.host, first.uuid));
}

// The kind of devices of all replicas of the job.
DeviceMix find_device_mix(const Communicator& ranks, const std::vector<Device>& devices,
                          bool share_gpus) {
  check_available_on_all(ranks, devices);
  const std::vector<GroupPlace> places =
      places_of(gather_texts(ranks, describe(devices, device::list_gpus())));
  const auto on_cpu = static_cast<std::size_t>(
      std::ranges::count_if(places, [](const GroupPlace& place) { return place.uuid.empty(); }));
  if (on_cpu == places.size()) return DeviceMix::cpu;
  if (on_cpu > 0) refuse_mixture(fmt::format("{} of {} on the CPU", on_cpu, places.size()));
  DeviceMix mix = DeviceMix::gpus;
  for (auto second = places.begin(); second != places.end(); ++second)
    for (auto first = places.begin(); first != second; ++first) {
      if (!first->shares_gpu_with(*second)) continue;
      if (first->rank != second->rank && !share_gpus) throw_gpu_conflict(*first, *second);
      mix = DeviceMix::shared_gpus;
    }
  return mix;
}

// NCCL if it reaches all members, else the host. All ranks decide alike, because make_nccl throws
// on all of them.
Members make_nccl_or_staged(const Communicator& ranks, const Members& hosts,
                            const std::vector<Device>& gpus, std::string& reason) {
  try {
    Members members = make_nccl(hosts, gpus, ranks);
    reason = fmt::format("NCCL reaches all {}", hosts.front()->size());
    return members;
  } catch (const Error& error) {
    reason = fmt::format("NCCL does not reach all {}: {}", hosts.front()->size(), error.what());
    return make_staged(hosts, gpus);
  }
}

void require_nccl(const std::vector<Device>& devices) {
  const auto refuse = [](const std::string& found) {
    throw Error(ErrorCategory::input, kOption,
                "expected a build with NCCL and a GPU for each replica", found);
  };
  const std::string version = nccl_built_version();
  if (version == "absent")
    refuse(
        "this build has no NCCL: install it with the CUDA toolkit, then configure and build again");
  if (!device::gpu_is_available())
    refuse(fmt::format("this build has NCCL {}, but there is no GPU: {}", version,
                       device::gpu_unavailable_reason()));
  if (devices.empty() || std::ranges::any_of(devices, is_on_cpu))
    refuse(fmt::format(
        "this build has NCCL {}, but the replicas are on the CPU: select GPUs with --devices",
        version));
}

}  // namespace

void require_devices(Route route, const std::vector<Device>& devices) {
  if (info_of(route).is_for_cpus()) return;
  if (route == Route::nccl) require_nccl(devices);
  if (devices.empty() || std::ranges::any_of(devices, is_on_cpu))
    throw Error(ErrorCategory::input, kOption,
                fmt::format("expected replicas on GPUs for {} (or use auto)", to_string(route)),
                fmt::format("got {}", devices.empty() ? "none" : list_of(devices)));
}

void require_no_ranks(Route route) {
  if (!info_of(route).connects_process())
    throw Error(ErrorCategory::input, kOption,
                fmt::format("expected ranks started by mpirun for {}", to_string(route)),
                "this process was started alone");
}

std::vector<Communicator> make_device_group(const std::vector<Device>& devices, Route route) {
  LOCKSTEP_CHECK(!devices.empty());
  require_devices(route, devices);
  const auto on_cpu = std::ranges::count_if(devices, is_on_cpu);
  const int size = static_cast<int>(devices.size());
  if (on_cpu == size) return make_in_process_group(size, route);
  if (on_cpu > 0) refuse_mixture(list_of(devices));
  check_route(route, &RouteInfo::gpus, "between GPUs of one process");
  check_available(devices);
  const Members hosts = members_of(make_in_process_group(size));
  return handles(route == Route::staged ? make_staged(hosts, devices)
                                        : make_on_gpus(hosts, devices, route));
}

std::vector<Communicator> make_device_group(const Communicator& ranks,
                                            const std::vector<Device>& devices, Route route,
                                            bool share_gpus, std::string* reason) {
  LOCKSTEP_CHECK(!devices.empty());
  if (ranks.size() == 1)
    return make_device_group(devices, info_of(route).connects_process() ? route : Route::automatic);
  const int local = static_cast<int>(devices.size());
  const DeviceMix mix = find_device_mix(ranks, devices, share_gpus);
  if (mix == DeviceMix::cpu) return make_multi_worker_group(ranks, local, route);
  if (mix == DeviceMix::shared_gpus)
    check_route(route, &RouteInfo::shared_gpus, "when replicas share a GPU");
  check_route(route, &RouteInfo::gpus_of_ranks, "between GPUs of several ranks");
  const Members hosts = members_of(make_multi_worker_group(ranks, local, Route::automatic));
  if (mix == DeviceMix::shared_gpus || route == Route::staged)
    return handles(make_staged(hosts, devices));
  if (route != Route::automatic || Topology(ranks).nodes() == 1)
    return handles(make_nccl(hosts, devices, ranks));
  std::string why;
  const std::vector<Communicator> group = handles(make_nccl_or_staged(ranks, hosts, devices, why));
  if (reason != nullptr) *reason = why;
  return group;
}

}  // namespace lockstep::inline v0::allreduce
