#include "allreduce/device_groups.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "allreduce/communicator_impl.h"
#include "allreduce/cuda/gpu_work.h"
#include "allreduce/groups.h"
#include "allreduce/mpi_ranks.h"
#include "allreduce/routes/in_gpu.h"
#include "allreduce/routes/job_texts.h"
#include "allreduce/routes/nccl.h"
#include "allreduce/topology.h"
#include "device/cpu.h"
#include "device/error.h"
#include "device/gpu.h"

namespace lockstep::allreduce {
namespace {

using device::Device;
using device::DeviceKind;
using Members = std::vector<std::shared_ptr<Communicator::Impl>>;

constexpr std::string_view kOption = "--allreduce";

bool is_on_cpu(const Device& device) { return device.kind == DeviceKind::cpu; }

std::string list_of(const std::vector<Device>& devices) {
  std::string list;
  for (const Device& device : devices) list += (list.empty() ? "" : ", ") + device::to_string(device);
  return list;
}

Members members_of(const std::vector<Communicator>& group) {
  Members members;
  for (const Communicator& member : group) members.push_back(member.impl());
  return members;
}

std::vector<Communicator> handles(const Members& members) {
  std::vector<Communicator> group;
  for (const auto& member : members) group.emplace_back(member);
  return group;
}

[[noreturn]] void refuse_mixture(const std::string& given) {
  throw Error(ErrorCategory::input, kOption, "needed replicas that are all on the CPU or all on GPUs",
              fmt::format("got {}", given));
}

void check_available(const std::vector<Device>& gpus) {
  const int count = static_cast<int>(device::list_gpus().size());
  for (const Device& gpu : gpus)
    if (gpu.index >= count)
      throw Error(ErrorCategory::device, "devices", fmt::format("needed {}", device::to_string(gpu)),
                  count == 0 ? device::gpu_unavailable_reason() : fmt::format("this process sees {} GPUs", count));
}

void check_route_between_gpus(Route route, std::initializer_list<Route> possible, std::string_view names) {
  if (std::ranges::find(possible, route) == possible.end())
    throw Error(ErrorCategory::input, kOption, fmt::format("needed {}", names),
                fmt::format("got {}", to_string(route)));
}

Members make_on_gpus(const Members& hosts, const std::vector<Device>& gpus) {
  const std::set<Device> distinct(gpus.begin(), gpus.end());
  if (distinct.size() == 1) {
    if (gpus.size() > gpu::kMostMembers)
      throw Error(ErrorCategory::input, kOption, fmt::format("needed at most {} replicas a GPU", gpu::kMostMembers),
                  fmt::format("got {}", gpus.size()));
    return make_in_gpu(hosts, gpus.front());
  }
  if (distinct.size() < gpus.size())
    throw Error(ErrorCategory::input, kOption, "needed a GPU for each replica, or one GPU for all",
                fmt::format("got {}", list_of(gpus)));
  return make_nccl(hosts, gpus, MPI_COMM_NULL);
}

// What the ranks tell each other of their devices: a line for each replica, "cpu", or a GPU that no other has.
std::string describe(const std::vector<Device>& devices, const std::vector<device::GpuInfo>& gpus) {
  std::string text;
  for (const Device& device : devices)
    text += is_on_cpu(device)
                ? "cpu\n"
                : fmt::format("{} of {}\n", gpus[static_cast<std::size_t>(device.index)].uuid, device::host_name());
  return text;
}

std::vector<std::string> lines_of(const std::vector<std::string>& texts) {
  std::vector<std::string> lines;
  for (const std::string& text : texts)
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  return lines;
}

void check_available_on_all(MPI_Comm ranks, const std::vector<Device>& devices) {
  std::optional<Failure> problem;
  try {
    std::vector<Device> gpus = devices;
    std::erase_if(gpus, is_on_cpu);
    check_available(gpus);
  } catch (const Error& error) {
    problem =
        Failure{"devices", fmt::format("needed the devices of rank {} on {}", rank_in(ranks), device::host_name()),
                error.what()};
  }
  raise_first(ranks, problem, ErrorCategory::device);
}

// True if all replicas of the job are on the CPU, false if each has a GPU of its own.
bool are_on_cpu(MPI_Comm ranks, const std::vector<Device>& devices) {
  check_available_on_all(ranks, devices);
  const std::vector<std::string> replicas = lines_of(gather_texts(ranks, describe(devices, device::list_gpus())));
  const auto on_cpu = static_cast<std::size_t>(std::ranges::count(replicas, "cpu"));
  if (on_cpu == replicas.size()) return true;
  if (on_cpu > 0) refuse_mixture(fmt::format("{} of {} on the CPU", on_cpu, replicas.size()));
  for (std::size_t replica = 0; replica < replicas.size(); ++replica) {
    const auto first = std::ranges::find(replicas, replicas[replica]) - replicas.begin();
    if (first != static_cast<std::ptrdiff_t>(replica))
      throw Error(ErrorCategory::input, kOption, "needed a GPU for each replica of a job of several ranks",
                  fmt::format("replicas {} and {} have the same, {}", first, replica, replicas[replica]));
  }
  return false;
}

bool has_one_replica_a_rank(MPI_Comm ranks, const Communicator& member) { return member.size() == size_of(ranks); }

}  // namespace

void require_nccl(const std::vector<Device>& devices) {
  const auto refuse = [](const std::string& given) {
    throw Error(ErrorCategory::input, kOption, "needed a build with NCCL and a GPU for each replica", given);
  };
  const std::string version = nccl_built_version();
  if (version == "absent")
    refuse("this one has no NCCL: install it beside the CUDA toolkit, configure and build again");
  if (!device::gpu_is_available())
    refuse(fmt::format("this one has NCCL {} and no GPU: {}", version, device::gpu_unavailable_reason()));
  if (devices.empty() || std::ranges::any_of(devices, is_on_cpu))
    refuse(fmt::format("this one has NCCL {}, and replicas on the CPU: name GPUs with --devices", version));
}

std::vector<Communicator> make_device_group(const std::vector<Device>& devices, Route route) {
  LOCKSTEP_CHECK(!devices.empty());
  if (route == Route::nccl) require_nccl(devices);
  const auto on_cpu = std::ranges::count_if(devices, is_on_cpu);
  const int size = static_cast<int>(devices.size());
  if (on_cpu == size) {
    check_route_between_gpus(route, {Route::automatic, Route::in_process}, "auto or in-process within one process");
    return make_in_process_group(size);
  }
  if (on_cpu > 0) refuse_mixture(list_of(devices));
  check_route_between_gpus(route, {Route::automatic, Route::in_process, Route::nccl},
                           "auto, in-process or nccl between GPUs of one process");
  check_available(devices);
  return handles(make_on_gpus(members_of(make_in_process_group(size)), devices));
}

std::vector<Communicator> make_device_group(MPI_Comm ranks, const std::vector<Device>& devices, Route route) {
  LOCKSTEP_CHECK(!devices.empty());
  const int size = size_of(ranks);
  if (size == 1) return make_device_group(devices, route == Route::nccl ? route : Route::automatic);
  const int local = static_cast<int>(devices.size());
  if (are_on_cpu(ranks, devices)) return make_multi_worker_group(ranks, local, route);
  check_route_between_gpus(route, {Route::automatic, Route::nccl, Route::hierarchical},
                           "auto, nccl or hierarchical between GPUs of several ranks");
  const std::vector<Communicator> hosts = make_multi_worker_group(ranks, local, Route::automatic);
  const Topology topology(ranks);
  const bool can_be_hierarchical = has_one_replica_a_rank(ranks, hosts.front());
  if (route == Route::hierarchical && !can_be_hierarchical)
    throw Error(ErrorCategory::input, kOption, "needed one replica a rank for hierarchical between GPUs",
                fmt::format("got {} replicas of {} ranks", hosts.front().size(), size));
  const bool is_hierarchical =
      route == Route::hierarchical || (route == Route::automatic && can_be_hierarchical && topology.nodes() > 1);
  if (!is_hierarchical) return handles(make_nccl(members_of(hosts), devices, ranks));
  const auto host = std::dynamic_pointer_cast<MpiGroup>(hosts.front().impl());
  LOCKSTEP_CHECK(host != nullptr);
  return {Communicator(make_nccl_hierarchical(host, devices.front(), ranks, topology.node()))};
}

}  // namespace lockstep::allreduce
