#include "apps/lockstep/launch/agent.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/link.h"
#include "strategy/task.h"

namespace lockstep::apps::launch {
namespace {

constexpr int kFailed = 255;  // as ssh has it
constexpr std::chrono::seconds kConnectTime(5);
constexpr const char* kHere = "127.0.0.1";

void write_to(std::FILE* file, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

int fail(const std::string& why) {
  write_to(stderr,
           fmt::format("lockstep: error: [launch] needed to be started by the mpirun of lockstep launch; {}\n", why));
  return kFailed;
}

int relay(Link& link) {
  while (link.is_open()) {
    pollfd ready = link.interest();
    poll(&ready, 1, -1);
    for (const Frame& frame : link.receive()) {
      if (frame.kind == FrameKind::output) write_to(stdout, frame.text);
      if (frame.kind == FrameKind::errors) write_to(stderr, frame.text);
      if (frame.kind == FrameKind::ended) return std::atoi(frame.text.c_str());
    }
  }
  return kFailed;
}

}  // namespace

std::string agent_address(std::uint16_t port, const std::string& token) { return fmt::format("{} {}", port, token); }

std::string agent_command() { return fmt::format("/proc/{}/exe {}", getpid(), kAgentCommand); }

std::string to_text(const Call& call) { return nlohmann::json({call.token, call.host, call.command}).dump(); }

Call parse_call(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array() || json.size() != 3 || !json[0].is_string() || !json[1].is_string() || !json[2].is_string())
    return {};
  return {.token = json[0], .host = json[1], .command = json[2]};
}

int run_agent(const std::vector<std::string>& words) {
  // mpirun, which starts it with the signal unblocked, takes its end for that of the daemon.
  std::signal(SIGTERM, SIG_IGN);
  const char* given = std::getenv(kAgentVariable);
  const std::string address = given == nullptr ? "" : given;
  const std::size_t space = address.find(' ');
  if (space == std::string::npos || words.size() < 2) return fail("there is no job that it could be of");
  std::string why;
  const auto port = static_cast<std::uint16_t>(std::atoi(address.substr(0, space).c_str()));
  allreduce::FileDescriptor socket = allreduce::connect_to(kHere, port, kConnectTime, why);
  if (!socket.is_open()) return fail("its first task is not there: " + why);
  Link link(std::move(socket));
  const std::vector<std::string> command(words.begin() + 1, words.end());
  link.send({FrameKind::call, to_text(Call{.token = address.substr(space + 1),
                                           .host = words.front(),
                                           .command = fmt::format("{}", fmt::join(command, " "))})});
  return relay(link);
}

}  // namespace lockstep::apps::launch
