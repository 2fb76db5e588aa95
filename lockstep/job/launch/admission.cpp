#include "lockstep/job/launch/admission.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/version.h"
#include "lockstep/net/interfaces.h"

namespace lockstep::inline v0::job {
namespace {

constexpr std::size_t kMaxMessage = std::size_t{4} << 20;
constexpr std::size_t kMaxWord = 1024;
constexpr std::size_t kMaxAddresses = 16;
constexpr int kMaxRanks = 65536;
constexpr std::size_t kMaxNamed = 8;

[[noreturn]] void refuse_message(std::string_view expected, std::string_view actual) {
  throw Error(ErrorCategory::communication, "start", expected, actual);
}

/// Reads with `read`, whose exceptions of JSON mean a text that no other process writes.
template <typename Read>
auto parsed(const std::string& text, Read read) {
  const nlohmann::json json =
      parse_json(text, ErrorCategory::communication, "start", {.bytes = kMaxMessage, .depth = 4});
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    refuse_message("expected a message of this version of Lockstep", error.what());
  }
}

nlohmann::json json_of(const JoinRequest& request) {
  return {request.version, request.job,  request.rank,      request.size,
          request.host,    request.node, request.addresses, request.port};
}

// Conversions of JSON's numbers wrap and truncate.
int integer_of(const nlohmann::json& json, int most) {
  const bool fits =
      json.is_number_unsigned() && json.get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
  if (!fits)
    refuse_message(fmt::format("expected a number from 0 to {}", most), describe_json(json));
  return json.get<int>();
}

JoinRequest join_request_of(const nlohmann::json& json) {
  JoinRequest request{.version = json.at(0),
                      .job = json.at(1),
                      .rank = integer_of(json.at(2), kMaxRanks - 1),
                      .size = integer_of(json.at(3), kMaxRanks),
                      .host = json.at(4),
                      .node = json.at(5),
                      .addresses = json.at(6),
                      .port = static_cast<std::uint16_t>(integer_of(json.at(7), UINT16_MAX))};
  for (const std::string& word : {request.version, request.job, request.host, request.node})
    if (word.size() > kMaxWord)
      refuse_message("expected short names", fmt::format("got {} bytes", word.size()));
  if (request.rank >= request.size)
    refuse_message("expected a rank of the job",
                   fmt::format("got rank {} of {}", request.rank, request.size));
  if (request.addresses.size() > kMaxAddresses)
    refuse_message("expected few addresses", fmt::format("got {}", request.addresses.size()));
  for (const std::string& address : request.addresses)
    if (!net::parse_address(address, request.port))
      refuse_message("expected a numeric address", fmt::format("got {}", describe_json(address)));
  return request;
}

std::string describe(const JoinRequest& request) {
  return fmt::format("rank {} of {} on {}", request.rank, request.size, request.host);
}

}  // namespace

std::string node_of_this_process() {
  std::string node;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> node;
  for (const char* kind : {"net", "pid", "ipc"}) {
    std::error_code unknown;
    node +=
        " " + std::filesystem::read_symlink(std::string("/proc/self/ns/") + kind, unknown).string();
  }
  return node;
}

std::string to_text(const JoinRequest& request) { return dump_json(json_of(request)); }

JoinRequest parse_join_request(const std::string& text) { return parsed(text, join_request_of); }

std::string to_text(const JobTable& table) {
  nlohmann::json members = nlohmann::json::array();
  for (const JoinRequest& member : table.members) members.push_back(json_of(member));
  return dump_json(nlohmann::json{table.job, members});
}

JobTable parse_job_table(const std::string& text) {
  return parsed(text, [](const nlohmann::json& json) {
    if (!json.at(0).is_number_unsigned())
      refuse_message("expected a number", describe_json(json.at(0)));
    JobTable table{.job = json.at(0), .members = {}};
    for (const nlohmann::json& member : json.at(1)) {
      table.members.push_back(join_request_of(member));
      if (table.members.back().rank + 1 != std::ssize(table.members))
        refuse_message("expected the members by rank", describe(table.members.back()));
    }
    return table;
  });
}

JoinRequest describe_this_process(const std::string& job, int rank, int size) {
  return {.version = LOCKSTEP_VERSION,
          // A name from TF_CONFIG contains the addresses of all workers.
          .job = job.size() <= 64 ? job : fmt::format("{:016x}", std::hash<std::string>()(job)),
          .rank = rank,
          .size = size,
          .host = host_name().substr(0, kMaxWord),
          .node = node_of_this_process()};
}

Admission::Admission(const JoinRequest& mine) : members_(static_cast<std::size_t>(mine.size)) {
  members_[static_cast<std::size_t>(mine.rank)] = mine;
}

std::string Admission::admit(const JoinRequest& request) {
  const JoinRequest& mine = *members_.front();
  const auto unlike = [&](std::string_view what, const auto& expected, const auto& actual) {
    return fmt::format("expected {} {}, as rank 0 on {} has, got {} from {}", what, expected,
                       mine.host, actual, describe(request));
  };
  if (request.version != mine.version) return unlike("Lockstep", mine.version, request.version);
  if (request.job != mine.job)
    return unlike("the job", describe_json(mine.job), describe_json(request.job));
  if (request.size != mine.size) return unlike("a job of", mine.size, request.size);
  std::optional<JoinRequest>& member = members_[static_cast<std::size_t>(request.rank)];
  if (member)
    return fmt::format("expected one process of each rank, got {} and {}", describe(*member),
                       describe(request));
  member = request;
  return {};
}

bool Admission::is_complete() const {
  return std::ranges::all_of(members_, [](const auto& member) { return member.has_value(); });
}

std::string Admission::missing() const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < members_.size(); ++rank)
    if (!members_[rank]) ranks.push_back(rank);
  const std::size_t named = std::min(ranks.size(), kMaxNamed);
  std::string text = fmt::format(
      "rank{} {}", ranks.size() == 1 ? "" : "s",
      fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

JobTable Admission::table() const {
  LOCKSTEP_CHECK(is_complete());
  JobTable table{.job = (std::uint64_t{std::random_device()()} << 32) | std::random_device()(),
                 .members = {}};
  for (const auto& member : members_) table.members.push_back(*member);
  return table;
}

}  // namespace lockstep::inline v0::job
