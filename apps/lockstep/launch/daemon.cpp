#include "apps/lockstep/launch/daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/lockstep/launch/fields.h"
#include "device/json.h"

namespace lockstep::apps::launch {
namespace {

// Those that mpirun itself hands to its daemons. None of them names a program, a library or a file.
constexpr std::array<std::string_view, 12> kParameters = {"btl_tcp_if_exclude",
                                                          "btl_tcp_if_include",
                                                          "hwloc_base_binding_policy",
                                                          "hwloc_base_use_hwthreads_as_cpus",
                                                          "oob_tcp_if_exclude",
                                                          "oob_tcp_if_include",
                                                          "pmix",
                                                          "rmaps_base_cpus_per_rank",
                                                          "rmaps_base_mapping_policy",
                                                          "rmaps_base_no_oversubscribe",
                                                          "rmaps_base_oversubscribe",
                                                          "rmaps_base_ranking_policy"};
constexpr std::size_t kMaxNodes = std::size_t{1} << 20;  // bytes of the list
constexpr std::size_t kMaxUri = 4096;
constexpr std::size_t kMaxValue = 1024;
constexpr std::size_t kMaxParameters = 64;
constexpr std::size_t kMaxFields = 10000;
constexpr int kMaxDaemons = 1'000'000;

bool may_be_sent(std::string_view name) { return std::ranges::find(kParameters, name) != kParameters.end(); }

/// mpirun quotes for the shell that ssh would have started.
std::string unquoted(const std::string& word) {
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"') return word.substr(1, word.size() - 2);
  return word;
}

bool is_option(const std::string& word) {
  return word == "-mca" || word == "--mca" || word == "-gmca" || word == "--gmca";
}

void require(bool right, std::string_view expected, const std::string& value) {
  if (!right) refuse(expected, describe_json(value));
}

void check(const DaemonFacts& facts) {
  require(
      !facts.job.empty() && facts.job.size() <= 10 && facts.job.find_first_not_of("0123456789") == std::string::npos,
      "the number of a job of mpirun", facts.job);
  require(!facts.nodes.empty() && facts.nodes.size() <= kMaxNodes && consists_of(facts.nodes, "._-,:@()[]"),
          "a list of nodes of mpirun", facts.nodes);
  addresses_of_uri(facts.uri);
  require(facts.uri.starts_with(facts.job + ".0;"), "the address of the same job of mpirun", facts.uri);
  for (const auto& [name, value] : facts.parameters) {
    require(may_be_sent(name), "a parameter of Open MPI that mpirun may send", name);
    require(value.size() <= kMaxValue && consists_of(value, "._-,:;/^=+*% "), "the value of a parameter of Open MPI",
            value);
  }
}

void add_address(std::vector<std::string>& addresses, std::string_view text, const std::string& uri) {
  if (text.starts_with('[')) text.remove_prefix(1);
  if (text.ends_with(']')) text.remove_suffix(1);
  require(is_address(text), "numeric addresses in mpirun's contact address", uri);
  addresses.emplace_back(text);
}

}  // namespace

std::vector<std::string> addresses_of_uri(const std::string& uri) {
  constexpr std::string_view kExpected = "a contact address of mpirun";
  require(uri.size() <= kMaxUri && consists_of(uri, ".:;/,[]%_-@"), kExpected, uri);
  std::vector<std::string> addresses;
  std::size_t begin = uri.find(';');
  require(begin != std::string::npos, kExpected, uri);
  for (; begin != std::string::npos; begin = uri.find(';', begin + 1)) {
    std::string_view part = std::string_view(uri).substr(begin + 1);
    part = part.substr(0, part.find(';'));
    const std::size_t scheme = part.find("://");
    require(part.starts_with("tcp://") || part.starts_with("tcp6://"), kExpected, uri);
    std::string_view list = part.substr(scheme + 3);
    const std::size_t colon = list.rfind(':');
    require(colon != std::string_view::npos, kExpected, uri);
    parse_integer(list.substr(colon + 1), 1, 65535);
    list = list.substr(0, colon);
    for (std::size_t comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
      add_address(addresses, list.substr(0, comma), uri);
      list.remove_prefix(comma + 1);
    }
    add_address(addresses, list, uri);
  }
  return addresses;
}

DaemonFacts read_daemon_command(const std::vector<std::string>& words) {
  DaemonFacts facts;
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (!is_option(words[i])) continue;
    const std::string name = unquoted(words[i + 1]);
    const std::string value = unquoted(words[i + 2]);
    i += 2;
    if (name == "ess_base_jobid") facts.job = value;
    if (name == "ess_base_vpid") facts.number = parse_integer(value, 1, kMaxDaemons);
    if (name == "ess_base_num_procs") facts.daemons = parse_integer(value, 1, kMaxDaemons);
    if (name == "orte_node_regex") facts.nodes = value;
    if (name == "orte_hnp_uri") facts.uri = value;
    if (may_be_sent(name)) facts.parameters.emplace_back(name, value);
  }
  check(facts);
  return facts;
}

std::string to_text(const DaemonFacts& facts) {
  nlohmann::json parameters = nlohmann::json::array();
  for (const auto& [name, value] : facts.parameters) parameters.push_back({name, value});
  return dump_json(nlohmann::json({{"job", facts.job},
                                   {"number", facts.number},
                                   {"daemons", facts.daemons},
                                   {"nodes", facts.nodes},
                                   {"uri", facts.uri},
                                   {"parameters", parameters},
                                   {"processors", facts.processors}}));
}

DaemonFacts parse_daemon(const std::string& text) {
  const nlohmann::json json = parse_fields(text, kMaxFields);
  DaemonFacts facts;
  facts.job = line_of(field(json, "job"), kMaxValue);
  facts.number = integer_of(field(json, "number"), 1, kMaxDaemons);
  facts.daemons = integer_of(field(json, "daemons"), 1, kMaxDaemons);
  facts.nodes = line_of(field(json, "nodes"), kMaxNodes);
  facts.uri = line_of(field(json, "uri"), kMaxUri);
  for (const nlohmann::json& one : require_array(field(json, "parameters"), kMaxParameters))
    facts.parameters.emplace_back(line_of(element(one, 0), kMaxValue), line_of(element(one, 1), kMaxValue));
  facts.processors = processors_of(field(json, "processors"));
  check(facts);
  return facts;
}

std::vector<std::string> daemon_command(const DaemonFacts& facts, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"orted"};
  const auto add = [&](const std::string& name, const std::string& value) {
    words.insert(words.end(), {"--mca", name, value});
  };
  add("ess", "env");
  add("ess_base_jobid", facts.job);
  add("ess_base_vpid", std::to_string(facts.number));
  add("ess_base_num_procs", std::to_string(facts.daemons));
  add("orte_node_regex", facts.nodes);
  add("orte_hnp_uri", facts.uri);
  add("plm", "rsh");
  add("plm_rsh_no_tree_spawn", "1");
  add("orte_leave_session_attached", "1");
  add("orte_keep_fqdn_hostnames", "1");
  const auto is_fact = [&](const std::string& name) {
    return std::ranges::any_of(facts.parameters, [&](const auto& one) { return one.first == name; });
  };
  for (const auto& [name, value] : facts.parameters) add(name, value);
  for (std::size_t i = 0; i + 2 < more.size(); ++i) {
    if (!is_option(more[i])) continue;
    if (!is_fact(more[i + 1])) add(more[i + 1], more[i + 2]);
    i += 2;
  }
  return words;
}

}  // namespace lockstep::apps::launch
