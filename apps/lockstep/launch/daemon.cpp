#include "apps/lockstep/launch/daemon.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/lockstep/launch/messages.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/printable.h"
#include "lockstep/net/authentication.h"
#include "lockstep/net/connection.h"
#include "lockstep/net/reachability.h"

namespace lockstep::inline v0::apps::launch {
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
  if (word.size() >= 2 && word.front() == '"' && word.back() == '"')
    return word.substr(1, word.size() - 2);
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
  return !job.empty() && job.size() <= 10 &&
         job.find_first_not_of("0123456789") == std::string::npos;
}

void check(const DaemonFacts& facts, const Runtime& runtime) {
  require(is_job(facts.job, runtime), fmt::format("the name of an mpirun job, of {}", runtime.name),
          facts.job);
  require(facts.nodes.empty() == runtime.nodes.empty() && facts.nodes.size() <= kMaxNodes &&
              consists_of(facts.nodes, "._-,:@()[]"),
          "mpirun's list of nodes", facts.nodes);
  addresses_of_uri(facts.uri);
  require(facts.uri.starts_with(facts.job + ".0;"), "the contact address of the same mpirun job",
          facts.uri);
  for (const auto& [name, value] : facts.parameters) {
    require(may_be_sent(name, runtime), "an Open MPI parameter that mpirun may send", name);
    require(value.size() <= kMaxValue && consists_of(value, "._-,:;/^=+*% "),
            "the value of an Open MPI parameter", value);
  }
}

void add_address(std::vector<std::string>& addresses, std::string_view text,
                 const std::string& uri) {
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
  // PRRTE, whose job names contain '@', appends the network prefix length of each address after the
  // port.
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
    for (std::size_t comma = list.find(','); comma != std::string_view::npos;
         comma = list.find(',')) {
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
    facts.parameters.emplace_back(line_of(element(one, 0), kMaxValue),
                                  line_of(element(one, 1), kMaxValue));
  facts.processors = processors_of(field(json, "processors"));
  check(facts, runtime);
  return facts;
}

std::vector<std::string> daemon_command(const DaemonFacts& facts,
                                        const std::vector<std::string>& more, bool as_root,
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
    return std::ranges::any_of(facts.parameters,
                               [&](const auto& one) { return one.first == name; });
  };
  for (const auto& [name, value] : facts.parameters) add(name, value);
  for (std::size_t i = 0; i + 2 < more.size(); ++i) {
    if (!is_option(more[i], runtime)) continue;
    if (!is_fact(more[i + 1])) add(more[i + 1], more[i + 2]);
    i += 2;
  }
  return words;
}

namespace {

constexpr int kFailed = 255;  // the exit status of ssh for its own errors
constexpr std::chrono::seconds kConnectTime(5);
constexpr const char* kHere = "127.0.0.1";
constexpr std::size_t kMaxHostName = 255;
constexpr std::size_t kMaxDaemonText = std::size_t{2} << 20;

void write_to(std::FILE* file, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

int fail(const std::string& why) {
  write_to(
      stderr,
      fmt::format(
          "lockstep: error: [launch] expected to be started by the mpirun of lockstep launch; {}\n",
          printable(why)));
  return kFailed;
}

int relay(net::Connection& link) {
  while (link.is_open()) {
    pollfd ready = link.interest();
    poll(&ready, 1, -1);
    for (const net::Frame& frame : link.receive()) {
      if (frame.is(FrameKind::output)) write_to(stdout, frame.body);
      if (frame.is(FrameKind::errors)) write_to(stderr, frame.body);
      if (frame.is(FrameKind::ended)) return parse_integer(frame.body, 0, 255);
    }
  }
  return kFailed;
}

}  // namespace

std::string agent_address(std::uint16_t port, const std::string& token) {
  return fmt::format("{} {}", port, token);
}

std::string agent_command() { return fmt::format("/proc/{}/exe {}", getpid(), kAgentCommand); }

std::string to_text(const Call& call) {
  return dump_json(nlohmann::json({call.host, to_text(call.daemon)}));
}

Call parse_call(const std::string& text, const Runtime& runtime) {
  const nlohmann::json json = parse_fields(text, 8);
  return {.host = line_of(element(json, 0), kMaxHostName),
          .daemon = parse_daemon(text_of(element(json, 1), kMaxDaemonText), runtime)};
}

int run_agent(const std::vector<std::string>& words) {
  // mpirun starts the agent with SIGTERM unblocked, and would treat its end as the end of the
  // daemon.
  std::signal(SIGTERM, SIG_IGN);
  const char* value = std::getenv(kAgentVariable);
  const std::string address = value == nullptr ? "" : value;
  const std::size_t space = address.find(' ');
  if (space == std::string::npos || words.size() < 2) return fail("it has no job or no command");
  try {
    std::string why;
    const auto port = static_cast<std::uint16_t>(parse_integer(address.substr(0, space), 1, 65535));
    const net::JobSecret token(address.substr(space + 1), kAgentVariable);
    const std::string call = to_text(
        Call{.host = words.front(),
             .daemon = read_daemon_command({words.begin() + 1, words.end()}, runtime_here())});
    FileDescriptor socket = net::connect_to(kHere, port, kConnectTime, why);
    if (!socket.is_open() ||
        !net::authenticate(socket, token, net::kAgentPurpose, kConnectTime, why))
      return fail("the first task cannot be reached: " + why);
    net::Connection link(std::move(socket), kFrameLimits);
    link.send({FrameKind::call, call});
    return relay(link);
  } catch (const Error& error) {
    return fail(error.what());
  }
}

}  // namespace lockstep::inline v0::apps::launch
