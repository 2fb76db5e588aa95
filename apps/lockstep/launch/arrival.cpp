#include "apps/lockstep/launch/arrival.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/fields.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host.h"
#include "lockstep/base/json.h"
#include "lockstep/base/numa.h"
#include "lockstep/net/socket.h"

namespace lockstep::apps::launch {
namespace {

using Json = nlohmann::json;

constexpr int kMaxRanks = 1'000'000;
constexpr std::size_t kMaxJob = 256;  // bytes
constexpr std::size_t kMaxPlace = 512;
constexpr std::size_t kMaxGpus = 4096;
constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxAddresses = 16;
constexpr std::size_t kMaxFields = 10000;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Processes share memory, names of processes and a network only where all of this is the same: two containers of one
/// machine may have the same name, and two hosts too.
std::string place_of_this_process() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  for (const char* kind : {"net", "pid", "ipc"}) {
    std::error_code unknown;
    boot += " " + std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind, unknown).string();
  }
  return boot;
}

/// Without loopback, save where there is nothing else.
std::vector<std::string> addresses_for_others() {
  const std::vector<std::string> all = net::host_addresses();
  std::vector<std::string> others;
  std::ranges::copy_if(all, std::back_inserter(others), [](const auto& one) { return !net::is_loopback(one); });
  return others.empty() ? all : others;
}

}  // namespace

std::string to_text(const Arrival& arrival) {
  return dump_json(Json({{"job", arrival.job},
                         {"rank", arrival.rank},
                         {"ranks", arrival.ranks},
                         {"local_ranks", arrival.local_ranks},
                         {"host", arrival.host},
                         {"place", arrival.place},
                         {"processors", arrival.processors},
                         {"gpus", arrival.gpus},
                         {"interface", arrival.interface},
                         {"addresses", arrival.addresses},
                         {"port", arrival.port}}));
}

Arrival parse_arrival(const std::string& text) {
  const Json json = parse_fields(text, kMaxFields);
  Arrival arrival;
  arrival.job = line_of(field(json, "job"), kMaxJob);
  arrival.ranks = integer_of(field(json, "ranks"), 1, kMaxRanks);
  arrival.rank = integer_of(field(json, "rank"), 0, arrival.ranks - 1);
  arrival.local_ranks = integer_of(field(json, "local_ranks"), 0, arrival.ranks);
  arrival.host = line_of(field(json, "host"), kMaxName);
  if (!is_host_name(arrival.host)) refuse("the name of a host", describe_json(arrival.host));
  arrival.place = line_of(field(json, "place"), kMaxPlace);
  arrival.processors = processors_of(field(json, "processors"));
  arrival.gpus = line_of(field(json, "gpus"), kMaxGpus);
  if (!is_gpu_list(arrival.gpus)) refuse("a list of GPUs", describe_json(arrival.gpus));
  arrival.interface = line_of(field(json, "interface"), kMaxName);
  if (!is_interface_name(arrival.interface)) refuse("the name of an interface", describe_json(arrival.interface));
  for (const Json& one : require_array(field(json, "addresses"), kMaxAddresses)) {
    arrival.addresses.push_back(line_of(one, kMaxName));
    if (!is_address(arrival.addresses.back())) refuse("a numeric address", describe_json(one));
  }
  arrival.port = static_cast<std::uint16_t>(integer_of(field(json, "port"), 0, 65535));
  return arrival;
}

/// The name of a job, short enough to be sent and compared: TF_CONFIG's are the addresses of all workers.
std::string short_name(const std::string& job) {
  if (job.size() <= kMaxJob / 2) return job;
  return fmt::format("{}… ({:016x})", job.substr(0, kMaxJob / 4), std::hash<std::string>()(job));
}

Arrival describe_this_task(const job::Task& task, const std::string& job, const std::string& host) {
  Arrival arrival{.job = short_name(job.empty() ? task.job : job),
                  .rank = task.rank,
                  .ranks = task.ranks,
                  .local_ranks = task.local_ranks};
  arrival.host = host.empty() ? host_name() : host;
  if (!is_host_name(arrival.host))
    throw Error(ErrorCategory::input, "launch",
                "needed a name of letters, digits, dots and dashes for this host: --host gives it one",
                fmt::format("got {}", describe_json(arrival.host)));
  arrival.place = host.empty() ? place_of_this_process() : host;
  arrival.processors = parse_number_list(processor_list());
  arrival.gpus = variable("CUDA_VISIBLE_DEVICES");
  arrival.addresses = addresses_for_others();
  return parse_arrival(to_text(arrival));  // as others read it, so that what is compared is alike
}

}  // namespace lockstep::apps::launch
