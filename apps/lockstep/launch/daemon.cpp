#include "apps/lockstep/launch/daemon.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/lockstep/launch/join_request.h"
#include "lockstep/base/json.h"

namespace lockstep::apps::launch {
namespace {

constexpr std::size_t kMaxNodes = std::size_t{1} << 20;  // bytes
constexpr std::size_t kMaxUri = 4096;
constexpr std::size_t kMaxValue = 1024;
constexpr std::size_t kMaxParameters = 64;
constexpr std::size_t kMaxFields = 10000;
constexpr int kMaxDaemons = 1'000'000;

bool may_be_sent(std::string_view name, const Runtime& runtime) {
  return std::ranges::find(runtime.may_be_set, name) != runtime.may_be_set.end();
}

/// mpirun quotes its arguments for the shell that ssh would start.
std::string unquoted(const std::string& word) {
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"') return word.substr(1, word.size() - 2);
  return word;
}

bool is_option(std::string_view word, const Runtime& runtime) {
  if (runtime.is_prrte) return word == runtime.option;
  return word == "-mca" || word == "--mca" || word == "-gmca" || word == "--gmca";
}

void require(bool right, std::string_view expected, const std::string& value) {
  if (!right) refuse(expected, describe_json(value));
}

bool is_job(const std::string& job, const Runtime& runtime) {
  if (runtime.is_prrte) return !job.empty() && job.size() <= kMaxValue && consists_of(job, "._-@");
  return !job.empty() && job.size() <= 10 && job.find_first_not_of("0123456789") == std::string::npos;
}

void check(const DaemonFacts& facts, const Runtime& runtime) {
  require(is_job(facts.job, runtime), fmt::format("the name of an mpirun job, of {}", runtime.name), facts.job);
  require(facts.nodes.empty() == runtime.nodes.empty() && facts.nodes.size() <= kMaxNodes &&
              consists_of(facts.nodes, "._-,:@()[]"),
          "mpirun's list of nodes", facts.nodes);
  addresses_of_uri(facts.uri);
  require(facts.uri.starts_with(facts.job + ".0;"), "the contact address of the same mpirun job", facts.uri);
  for (const auto& [name, value] : facts.parameters) {
    require(may_be_sent(name, runtime), "an Open MPI parameter that mpirun may send", name);
    require(value.size() <= kMaxValue && consists_of(value, "._-,:;/^=+*% "), "the value of an Open MPI parameter",
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
  // PRRTE, whose job names contain '@', appends the network prefix length of each address after the port.
  const bool has_masks = uri.substr(0, begin).find('@') != std::string::npos;
  for (; begin != std::string::npos; begin = uri.find(';', begin + 1)) {
    std::string_view part = std::string_view(uri).substr(begin + 1);
    part = part.substr(0, part.find(';'));
    const std::size_t scheme = part.find("://");
    require(part.starts_with("tcp://") || part.starts_with("tcp6://"), kExpected, uri);
    std::string_view list = part.substr(scheme + 3);
    if (has_masks) list = list.substr(0, list.rfind(':'));
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

DaemonFacts read_daemon_command(const std::vector<std::string>& words, const Runtime& runtime) {
  DaemonFacts facts;
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (!is_option(words[i], runtime)) continue;
    const std::string name = unquoted(words[i + 1]);
    const std::string value = unquoted(words[i + 2]);
    i += 2;
    if (name == runtime.job) facts.job = value;
    if (name == "ess_base_vpid") facts.number = parse_integer(value, 1, kMaxDaemons);
    if (name == "ess_base_num_procs") facts.daemons = parse_integer(value, 1, kMaxDaemons);
    if (name == runtime.nodes) facts.nodes = value;
    if (name == runtime.uri) facts.uri = value;
    if (may_be_sent(name, runtime)) facts.parameters.emplace_back(name, value);
  }
  check(facts, runtime);
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

DaemonFacts parse_daemon(const std::string& text, const Runtime& runtime) {
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
  check(facts, runtime);
  return facts;
}

std::vector<std::string> daemon_command(const DaemonFacts& facts, const std::vector<std::string>& more, bool as_root,
                                        const Runtime& runtime) {
  std::vector<std::string> words = {std::string(runtime.daemon)};
  if (as_root && runtime.is_prrte) words.emplace_back("--allow-run-as-root");
  const auto add = [&](std::string_view name, std::string_view value) {
    for (const std::string_view word : {runtime.option, name, value}) words.emplace_back(word);
  };
  add("ess", "env");
  add(runtime.job, facts.job);
  add("ess_base_vpid", std::to_string(facts.number));
  add("ess_base_num_procs", std::to_string(facts.daemons));
  if (!runtime.nodes.empty()) add(runtime.nodes, facts.nodes);
  add(runtime.uri, facts.uri);
  add("plm", runtime.launcher);
  add(runtime.no_tree, "1");
  if (runtime.is_prrte)
    add("pmix_session_server", "1");
  else
    add("orte_leave_session_attached", "1");
  add(runtime.full_names, "1");
  const auto is_fact = [&](const std::string& name) {
    return std::ranges::any_of(facts.parameters, [&](const auto& one) { return one.first == name; });
  };
  for (const auto& [name, value] : facts.parameters) add(name, value);
  for (std::size_t i = 0; i + 2 < more.size(); ++i) {
    if (!is_option(more[i], runtime)) continue;
    if (!is_fact(more[i + 1])) add(more[i + 1], more[i + 2]);
    i += 2;
  }
  return words;
}

}  // namespace lockstep::apps::launch
