#include "lockstep/job/placement/placement.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/system/numa.h"
#include "lockstep/device/gpu.h"

namespace lockstep::inline v0::job {
namespace {

constexpr std::size_t kShortUuid = 12;  // "GPU-" and eight digits
constexpr double kGibibyte = 1 << 30;

std::size_t width_of(const std::vector<Placement>& placements, std::size_t least,
                     std::string Placement::*text) {
  for (const Placement& one : placements) least = std::max(least, (one.*text).size());
  return least;
}

std::size_t width_of_gpus(const std::vector<Placement>& placements) {
  std::size_t width = 3;
  for (const Placement& one : placements) width = std::max(width, one.gpu.name.size());
  return width;
}

std::string gpu_columns(const GpuPlace& gpu, std::size_t width) {
  return fmt::format("  {:<{}}  {:<12}  {:>4}  {:>6.1f}", gpu.name, width,
                     gpu.uuid.substr(0, kShortUuid),
                     gpu.numa_node < 0 ? "-" : std::to_string(gpu.numa_node),
                     static_cast<double>(gpu.bytes) / kGibibyte);
}

// "rank 3 on a", or "rank 0 on a and 3 more".
std::string describe_ranks(const std::set<int>& ranks, const Placement& first) {
  const std::string who = fmt::format("rank {} on {}", first.rank, first.host);
  return ranks.size() == 1 ? who : fmt::format("{} and {} more", who, ranks.size() - 1);
}

template <typename Condition, typename Sentence>
void add_warning(std::vector<std::string>& warnings, const std::vector<Placement>& placements,
                 Condition condition, Sentence sentence) {
  const auto first = std::ranges::find_if(placements, condition);
  if (first == placements.end()) return;
  std::set<int> ranks;
  for (const Placement& one : placements)
    if (condition(one)) ranks.insert(one.rank);
  warnings.push_back(sentence(describe_ranks(ranks, *first), *first));
}

/// The node and processor list of a process. Processes with equal values share these cores.
using Cores = std::pair<int, std::string>;
Cores cores_of(const Placement& place) {
  // If the list is unknown, assume that the process has its own cores.
  return {place.node,
          place.processor_list.empty() ? fmt::format("rank {}", place.rank) : place.processor_list};
}

/// Total kernel threads on each set of cores.
std::map<Cores, int> kernel_threads(const std::vector<Placement>& placements) {
  std::map<Cores, int> threads;
  for (const Placement& one : placements)
    if (!one.is_on_gpu()) threads[cores_of(one)] += one.cores;
  return threads;
}

bool is_far_from_its_gpu(const Placement& place) {
  return place.is_on_gpu() && place.gpu.numa_node >= 0 && !place.numa_nodes.empty() &&
         std::ranges::find(place.numa_nodes, place.gpu.numa_node) == place.numa_nodes.end();
}

}  // namespace

Placement describe_place(device::Device device) {
  Placement place;
  place.host = host_name();
  place.device = to_string(device);
  place.processors = available_cores();
  place.processor_list = processor_list();
  place.numa_nodes = numa_nodes_of_process();
  if (device.kind == device::DeviceKind::cpu) return place;
  const std::vector<device::GpuInfo> gpus = device::list_gpus();
  const device::GpuInfo& gpu = gpus.at(static_cast<std::size_t>(device.index));
  place.gpu = {gpu.name, gpu.uuid, gpu.numa_node, gpu.total_bytes};
  return place;
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuPlace, name, uuid, numa_node, bytes)

void to_json(nlohmann::json& json, const Placement& place) {
  json = {{"replica", place.replica},
          {"rank", place.rank},
          {"local_rank", place.local_rank},
          {"node", place.node},
          {"host", place.host},
          {"device", place.device},
          {"cores", place.cores},
          {"gpu", place.gpu},
          {"processors", place.processors},
          {"processor_list", place.processor_list},
          {"numa_nodes", place.numa_nodes},
          {"interface", place.interface}};
}

void from_json(const nlohmann::json& json, Placement& place) {
  json.at("replica").get_to(place.replica);
  json.at("rank").get_to(place.rank);
  json.at("local_rank").get_to(place.local_rank);
  json.at("node").get_to(place.node);
  json.at("host").get_to(place.host);
  json.at("device").get_to(place.device);
  json.at("cores").get_to(place.cores);
  json.at("gpu").get_to(place.gpu);
  json.at("processors").get_to(place.processors);
  json.at("processor_list").get_to(place.processor_list);
  json.at("numa_nodes").get_to(place.numa_nodes);
  json.at("interface").get_to(place.interface);
}

std::string placement_table(const std::vector<Placement>& placements) {
  const std::size_t host_width = width_of(placements, 4, &Placement::host);
  const bool has_gpus = std::ranges::any_of(placements, &Placement::is_on_gpu);
  const std::size_t gpu_width = width_of_gpus(placements);
  const std::size_t interface_width = width_of(placements, 9, &Placement::interface);
  std::string table = fmt::format("{:>7}  {:>4}  {:<{}}  {:>5}  {:<6}  {:>5}  {:<{}}", "replica",
                                  "rank", "host", host_width, "local", "device", "cores",
                                  "interface", has_gpus ? interface_width : 0);
  if (has_gpus)
    table += fmt::format("  {:<{}}  {:<12}  {:>4}  {:>6}", "GPU", gpu_width, "UUID", "NUMA", "GiB");
  table += '\n';
  for (const Placement& one : placements) {
    const std::string interface = one.interface.empty() ? "-" : one.interface;
    table += fmt::format("{:>7}  {:>4}  {:<{}}  {:>5}  {:<6}  {:>5}  {:<{}}", one.replica, one.rank,
                         printable(one.host), host_width, one.local_rank, one.device, one.cores,
                         interface, has_gpus ? interface_width : interface.size());
    if (has_gpus) table += gpu_columns(one.gpu, gpu_width);
    table += '\n';
  }
  return table;
}

std::vector<std::string> placement_warnings(const std::vector<Placement>& placements,
                                            int data_threads) {
  std::vector<std::string> warnings;
  add_warning(
      warnings, placements, [&](const Placement& place) { return place.processors < data_threads; },
      [&](const std::string& who, const Placement& place) {
        return fmt::format(
            "{} may run on {} of the host's cores, fewer than --data-threads {}: start mpirun with "
            "--bind-to none, or --map-by slot:PE={}",
            who, place.processors, data_threads, data_threads + 1);
      });
  const std::map<Cores, int> threads = kernel_threads(placements);
  add_warning(
      warnings, placements,
      [&](const Placement& place) {
        return !place.is_on_gpu() && threads.at(cores_of(place)) > place.processors;
      },
      [&](const std::string& who, const Placement& place) {
        return fmt::format(
            "{}: {} compute threads on {} of the host's cores: start fewer ranks or replicas "
            "there, or, if they are bound, start mpirun with --bind-to none",
            who, threads.at(cores_of(place)), place.processors);
      });
  add_warning(
      warnings, placements, is_far_from_its_gpu,
      [](const std::string& who, const Placement& place) {
        return fmt::format(
            "the cores of {} are on NUMA node {}, but {} is near node {}: start mpirun with "
            "--bind-to none, or bind the rank there with numactl --cpunodebind={}",
            who, fmt::join(place.numa_nodes, ", "), place.device, place.gpu.numa_node,
            place.gpu.numa_node);
      });
  return warnings;
}

}  // namespace lockstep::inline v0::job
