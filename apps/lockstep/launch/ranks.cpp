#include "apps/lockstep/launch/ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/job/launch/launcher.h"
#include "lockstep/net/token.h"

namespace lockstep::inline v0::apps::launch {
namespace {

constexpr int kMaxRanks = 65536;
constexpr std::size_t kMaxLine = std::size_t{4} << 20;

[[noreturn]] void refuse_hosts(const std::string& expected, std::string_view hosts) {
  throw Error(ErrorCategory::input, "--hosts", expected,
              fmt::format("got {}", describe_json(std::string(hosts))));
}

/// A name becomes a word of ssh's command line.
bool is_host(std::string_view name) {
  const auto is_allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-._@").find(static_cast<char>(c)) != std::string_view::npos;
  };
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, is_allowed);
}

/// Whether a variable identifies a task of a job, would make a program part of one, or is another
/// job's secret.
bool identifies_task(std::string_view name) {
  constexpr std::array kNames = {"TF_CONFIG",
                                 "RANK",
                                 "WORLD_SIZE",
                                 "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE",
                                 "NODE_RANK",
                                 "GROUP_RANK",
                                 "MASTER_ADDR",
                                 "MASTER_PORT",
                                 "SLURM_PROCID",
                                 "SLURM_LOCALID",
                                 "SLURM_NODEID",
                                 "SLURM_TASK_PID",
                                 "SLURM_GTIDS",
                                 "JOB_COMPLETION_INDEX",
                                 "HOROVOD_RANK",
                                 "HOROVOD_SIZE",
                                 "HOROVOD_LOCAL_RANK",
                                 "HOROVOD_LOCAL_SIZE"};
  constexpr std::array kBeginnings = {"PMI_",        "PMIX_",          "OMPI_COMM_WORLD_",
                                      "SLURM_STEP_", "SLURM_CPU_BIND", "SLURM_PMI"};
  return name == job::kLaunchedRankVariable || name == net::kSecretVariable ||
         name == net::kSecretFileVariable || std::ranges::find(kNames, name) != kNames.end() ||
         std::ranges::any_of(kBeginnings,
                             [&](const char* beginning) { return name.starts_with(beginning); });
}

std::string_view name_in(std::string_view entry) { return entry.substr(0, entry.find('=')); }

}  // namespace

std::vector<HostRanks> place_ranks(std::string_view hosts, int ranks) {
  constexpr const char* kForm =
      "expected hosts with their numbers of ranks, such as node1:2,node2:2";
  if (hosts.empty()) return {{.host = "", .first = 0, .count = ranks}};
  std::vector<HostRanks> placed;
  int room = 0;
  for (std::string_view rest = hosts;;) {
    const std::size_t comma = rest.find(',');
    std::string_view part = rest.substr(0, comma);
    const std::size_t colon = part.find(':');
    const auto count =
        colon == std::string_view::npos ? 1 : parse_number<int>(part.substr(colon + 1));
    part = part.substr(0, colon);
    if (!is_host(part) || !count || *count < 1 || *count > kMaxRanks) refuse_hosts(kForm, hosts);
    const int used = ranks == 0 ? *count : std::min(*count, ranks - room);
    if (used > 0) placed.push_back({.host = std::string(part), .first = room, .count = used});
    room += used;
    if (room > kMaxRanks) refuse_hosts(fmt::format("expected at most {} ranks", kMaxRanks), hosts);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (room < ranks) refuse_hosts(fmt::format("expected room for {} ranks", ranks), hosts);
  return placed;
}

std::string to_line(const HostPart& part) {
  return dump_json(nlohmann::json{part.ranks.host, part.ranks.first, part.ranks.count, part.size,
                                  part.rendezvous, part.port, part.secret, part.directory,
                                  part.environment, part.command});
}

HostPart parse_part(const std::string& line) {
  const nlohmann::json json =
      parse_json(line, ErrorCategory::communication, "launch", {.bytes = kMaxLine, .depth = 2});
  try {
    HostPart part{.ranks = {.host = json.at(0), .first = json.at(1), .count = json.at(2)},
                  .size = json.at(3),
                  .rendezvous = json.at(4),
                  .port = json.at(5),
                  .secret = json.at(6),
                  .directory = json.at(7),
                  .environment = json.at(8),
                  .command = json.at(9)};
    if (part.command.empty() || part.ranks.count < 1 || part.ranks.count > kMaxRanks)
      throw Error(ErrorCategory::communication, "launch", "expected ranks and a command",
                  "got none");
    return part;
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCategory::communication, "launch",
                "expected the ranks of this host from the lockstep of the first one", error.what());
  }
}

std::vector<std::string> environment_of(const HostPart& part, int local) {
  std::vector<std::string> all;
  const auto is_set = [&](std::string_view name) {
    return std::ranges::any_of(part.environment,
                               [&](std::string_view entry) { return name_in(entry) == name; });
  };
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!identifies_task(name_in(*entry)) && !is_set(name_in(*entry))) all.emplace_back(*entry);
  all.insert(all.end(), part.environment.begin(), part.environment.end());
  all.push_back(fmt::format("{}={}", job::kLaunchedRankVariable, part.ranks.first + local));
  for (const char* const prefix : {"", "HOROVOD_"}) {  // which programs of Horovod read
    const std::string_view size = *prefix == '\0' ? "WORLD_SIZE" : "SIZE";
    all.push_back(fmt::format("{}RANK={}", prefix, part.ranks.first + local));
    all.push_back(fmt::format("{}{}={}", prefix, size, part.size));
    all.push_back(fmt::format("{}LOCAL_RANK={}", prefix, local));
    all.push_back(fmt::format("{}LOCAL_{}={}", prefix, size, part.ranks.count));
  }
  all.push_back(fmt::format("MASTER_ADDR={}", part.rendezvous));
  all.push_back(fmt::format("MASTER_PORT={}", part.port));
  all.push_back(fmt::format("{}={}", net::kSecretVariable, part.secret));
  return all;
}

std::vector<std::string> environment_for_hosts() {
  constexpr std::array kBeginnings = {"LOCKSTEP_", "OMP_", "NCCL_", "PYTHON", "HOROVOD_"};
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = name_in(*entry);
    if (identifies_task(name)) continue;
    if (name == "PATH" || name == "LD_LIBRARY_PATH" ||
        std::ranges::any_of(kBeginnings,
                            [&](const char* beginning) { return name.starts_with(beginning); }))
      all.emplace_back(*entry);
  }
  return all;
}

}  // namespace lockstep::inline v0::apps::launch
