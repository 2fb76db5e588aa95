#include "apps/lockstep/launch/arrival.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "allreduce/watch/socket.h"
#include "device/cpu.h"
#include "device/numa.h"

namespace lockstep::apps::launch {
namespace {

using Json = nlohmann::json;

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
  const std::vector<std::string> all = allreduce::host_addresses();
  std::vector<std::string> others;
  std::ranges::copy_if(all, std::back_inserter(others), [](const auto& one) { return !allreduce::is_loopback(one); });
  return others.empty() ? all : others;
}

}  // namespace

std::string to_text(const Arrival& arrival) {
  return Json({{"job", arrival.job},
               {"rank", arrival.rank},
               {"ranks", arrival.ranks},
               {"local_ranks", arrival.local_ranks},
               {"host", arrival.host},
               {"place", arrival.place},
               {"processors", arrival.processors},
               {"gpus", arrival.gpus},
               {"interface", arrival.interface},
               {"addresses", arrival.addresses},
               {"port", arrival.port}})
      .dump();
}

Arrival parse_arrival(const std::string& text) {
  const Json json = Json::parse(text);
  Arrival arrival;
  json.at("job").get_to(arrival.job);
  json.at("rank").get_to(arrival.rank);
  json.at("ranks").get_to(arrival.ranks);
  json.at("local_ranks").get_to(arrival.local_ranks);
  json.at("host").get_to(arrival.host);
  json.at("place").get_to(arrival.place);
  json.at("processors").get_to(arrival.processors);
  json.at("gpus").get_to(arrival.gpus);
  json.at("interface").get_to(arrival.interface);
  json.at("addresses").get_to(arrival.addresses);
  json.at("port").get_to(arrival.port);
  return arrival;
}

Arrival describe_this_task(const strategy::Task& task, const std::string& job, const std::string& host) {
  Arrival arrival{
      .job = job.empty() ? task.job : job, .rank = task.rank, .ranks = task.ranks, .local_ranks = task.local_ranks};
  arrival.host = host.empty() ? device::host_name() : host;
  arrival.place = host.empty() ? place_of_this_process() : host;
  arrival.processors = device::parse_number_list(device::processor_list());
  arrival.gpus = variable("CUDA_VISIBLE_DEVICES");
  arrival.addresses = addresses_for_others();
  return arrival;
}

}  // namespace lockstep::apps::launch
