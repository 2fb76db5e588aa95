#include "apps/lockstep/launch/messages.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/system/host.h"
#include "lockstep/base/text.h"
#include "lockstep/job/launch/admission.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::launch {
namespace {

using nlohmann::json;

// Limits in bytes or elements.
constexpr int kMaxDepth = 3;
constexpr std::size_t kMaxName = 255;
constexpr std::size_t kMaxGpuList = 4096;
constexpr std::size_t kMaxProcessors = 8192;
constexpr int kMaxRanks = 1'000'000;
constexpr std::size_t kMaxJob = 256;
constexpr std::size_t kMaxPlace = 512;
constexpr std::size_t kMaxAddresses = 16;      // per host
constexpr std::size_t kMaxJoinFields = 10000;  // per JoinRequest
constexpr std::size_t kMaxTargets = 100000;
constexpr std::size_t kMaxTargetFields = kMaxTargets * (kMaxAddresses + 4);
constexpr int kMaxStatus = 255;
constexpr std::size_t kMaxMessage = std::size_t{64} << 10;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

void refuse(std::string_view expected, std::string_view got) {
  throw Error(ErrorCategory::communication, "launch", fmt::format("expected {}", expected),
              fmt::format("got {}", got));
}

json parse_fields(std::string_view text, std::size_t values) {
  return parse_json(text, ErrorCategory::communication, "launch",
                    {.bytes = kFrameLimits.body, .depth = kMaxDepth, .values = values});
}

const json& field(const json& object, const char* name) {
  if (!object.is_object() || !object.contains(name))
    refuse(fmt::format("an object with \"{}\"", name), describe_json(object));
  return object[name];
}

const json& element(const json& array, std::size_t index) {
  if (!array.is_array() || index >= array.size())
    refuse(fmt::format("an array of more than {} elements", index), describe_json(array));
  return array[index];
}

const json& require_array(const json& value, std::size_t most) {
  if (!value.is_array() || value.size() > most)
    refuse(fmt::format("an array of at most {} elements", most), describe_json(value));
  return value;
}

int integer_of(const json& value, int least, int most) {
  // Compare as unsigned first: a large 64-bit number would wrap when read as a signed one.
  const bool fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT32_MAX)
                        : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    refuse(fmt::format("a number from {} to {}", least, most), describe_json(value));
  return value.get<int>();
}

std::string text_of(const json& value, std::size_t most) {
  if (!value.is_string() || value.get_ref<const std::string&>().size() > most)
    refuse(fmt::format("a string of at most {} bytes", most), describe_json(value));
  return value.get<std::string>();
}

std::string line_of(const json& value, std::size_t most) {
  std::string line = text_of(value, most);
  if (std::ranges::any_of(line, is_control))
    refuse("a string without control characters", describe_json(value));
  return line;
}

std::vector<int> processors_of(const json& value) {
  std::vector<int> processors;
  for (const json& one : require_array(value, kMaxProcessors))
    processors.push_back(integer_of(one, 0, INT32_MAX));
  return processors;
}

int parse_integer(std::string_view text, int least, int most) {
  const auto value = parse_number<int>(text);
  if (!value || *value < least || *value > most)
    refuse(fmt::format("a number from {} to {}", least, most),
           describe_json(std::string(text.substr(0, kMaxName))));
  return *value;
}

bool consists_of(std::string_view text, std::string_view more) {
  return std::ranges::all_of(text, [&](char c) {
    return is_letter_or_digit(c) || more.find(c) != std::string_view::npos;
  });
}

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && !name.starts_with('-') &&
         consists_of(name, ".-_");
}

bool is_interface_name(std::string_view name) {
  return name.size() < IFNAMSIZ && !name.starts_with('-') && consists_of(name, ".-_:@");
}

bool is_gpu_list(std::string_view list) {
  return list.size() <= kMaxGpuList && consists_of(list, "-_,./: ");
}

bool is_address(std::string_view address) {
  const std::size_t scope = address.find('%');
  if (scope != std::string_view::npos && !is_interface_name(address.substr(scope + 1)))
    return false;
  const std::string number(address.substr(0, scope));
  in6_addr parsed{};
  return inet_pton(AF_INET, number.c_str(), &parsed) == 1 ||
         inet_pton(AF_INET6, number.c_str(), &parsed) == 1;
}

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> numeric_addresses(const json& value) {
  std::vector<std::string> addresses;
  for (const json& one : require_array(value, kMaxAddresses)) {
    addresses.push_back(line_of(one, kMaxName));
    if (!is_address(addresses.back())) refuse("a numeric address", describe_json(one));
  }
  return addresses;
}

/// The addresses of this host, without loopback unless there is no other.
std::vector<std::string> addresses_for_others() {
  std::vector<std::string> others = net::addresses_for_other_hosts();
  return others.empty() ? net::host_addresses() : others;
}

}  // namespace

std::string to_text(const JoinRequest& join_request) {
  return dump_json(json({{"job", join_request.job},
                         {"rank", join_request.rank},
                         {"ranks", join_request.ranks},
                         {"local_ranks", join_request.local_ranks},
                         {"host", join_request.host},
                         {"place", join_request.place},
                         {"processors", join_request.processors},
                         {"gpus", join_request.gpus},
                         {"interface", join_request.interface},
                         {"addresses", join_request.addresses},
                         {"port", join_request.port}}));
}

JoinRequest parse_join_request(const std::string& text) {
  const json fields = parse_fields(text, kMaxJoinFields);
  JoinRequest join_request;
  join_request.job = line_of(field(fields, "job"), kMaxJob);
  join_request.ranks = integer_of(field(fields, "ranks"), 1, kMaxRanks);
  join_request.rank = integer_of(field(fields, "rank"), 0, join_request.ranks - 1);
  join_request.local_ranks = integer_of(field(fields, "local_ranks"), 0, join_request.ranks);
  join_request.host = line_of(field(fields, "host"), kMaxName);
  if (!is_host_name(join_request.host))
    refuse("the name of a host", describe_json(join_request.host));
  join_request.place = line_of(field(fields, "place"), kMaxPlace);
  join_request.processors = processors_of(field(fields, "processors"));
  join_request.gpus = line_of(field(fields, "gpus"), kMaxGpuList);
  if (!is_gpu_list(join_request.gpus)) refuse("a list of GPUs", describe_json(join_request.gpus));
  join_request.interface = line_of(field(fields, "interface"), kMaxName);
  if (!is_interface_name(join_request.interface))
    refuse("the name of an interface", describe_json(join_request.interface));
  join_request.addresses = numeric_addresses(field(fields, "addresses"));
  join_request.port = static_cast<std::uint16_t>(integer_of(field(fields, "port"), 0, 65535));
  return join_request;
}

namespace {

/// Shortens the name of a job. A name from TF_CONFIG contains the addresses of all workers.
std::string short_name(const std::string& job) {
  if (job.size() <= kMaxJob / 2) return job;
  return fmt::format("{}… ({:016x})", job.substr(0, kMaxJob / 4), std::hash<std::string>()(job));
}

}  // namespace

JoinRequest describe_this_task(const job::Task& task, const std::string& job,
                               const std::string& host) {
  JoinRequest join_request{.job = short_name(job.empty() ? task.job : job),
                           .rank = task.rank,
                           .ranks = task.ranks,
                           .local_ranks = task.local_ranks};
  join_request.host = host.empty() ? host_name() : host;
  if (!is_host_name(join_request.host))
    throw Error(ErrorCategory::input, "launch",
                "expected a host name of letters, digits, dots and dashes (set one with --host)",
                fmt::format("got {}", describe_json(join_request.host)));
  join_request.place = host.empty() ? job::node_of_this_process() : host;
  join_request.processors = allowed_processors();
  join_request.gpus = variable("CUDA_VISIBLE_DEVICES");
  join_request.addresses = addresses_for_others();
  return parse_join_request(
      to_text(join_request));  // as received by other tasks, so that comparisons are consistent
}

std::string to_text(const std::vector<Target>& targets) {
  json all = json::array();
  for (const Target& target : targets) all.push_back({target.host, target.addresses, target.port});
  return dump_json(all);
}

std::vector<Target> parse_targets(const std::string& text) {
  std::vector<Target> targets;
  const json all = parse_fields(text, kMaxTargetFields);
  for (const json& one : require_array(all, kMaxTargets)) {
    Target target{.host = line_of(element(one, 0), kMaxName),
                  .addresses = numeric_addresses(element(one, 1))};
    target.port = static_cast<std::uint16_t>(integer_of(element(one, 2), 1, 65535));
    targets.push_back(std::move(target));
  }
  return targets;
}

std::string to_text(const Ending& ending) {
  return dump_json(json({ending.status, ending.message.substr(0, kMaxMessage)}));
}

Ending parse_ending(const std::string& text) {
  const json fields = parse_fields(text, 8);
  return {.status = integer_of(element(fields, 0), 0, kMaxStatus),
          .message = text_of(element(fields, 1), 4 * kMaxMessage)};
}

}  // namespace lockstep::inline v0::apps::launch
