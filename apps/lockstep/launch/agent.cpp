#include "apps/lockstep/launch/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "apps/lockstep/launch/join_request.h"
#include "apps/lockstep/launch/link.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/net/authentication.h"

namespace lockstep::apps::launch {
namespace {

constexpr int kFailed = 255;  // the exit status of ssh for its own errors
constexpr std::chrono::seconds kConnectTime(5);
constexpr const char* kHere = "127.0.0.1";
constexpr std::chrono::seconds kSameHost(3600);  // the kernel reports a lost local peer at once
constexpr std::size_t kMaxHostName = 255;
constexpr std::size_t kMaxDaemonText = std::size_t{2} << 20;

void write_to(std::FILE* file, const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

int fail(const std::string& why) {
  write_to(stderr,
           fmt::format("lockstep: error: [launch] expected to be started by the mpirun of lockstep launch; {}\n", why));
  return kFailed;
}

int relay(Link& link) {
  while (link.is_open()) {
    pollfd ready = link.interest();
    poll(&ready, 1, -1);
    for (const Frame& frame : link.receive()) {
      if (frame.kind == FrameKind::output) write_to(stdout, frame.text);
      if (frame.kind == FrameKind::errors) write_to(stderr, frame.text);
      if (frame.kind == FrameKind::ended) return parse_integer(frame.text, 0, 255);
    }
  }
  return kFailed;
}

}  // namespace

std::string agent_address(std::uint16_t port, const std::string& token) { return fmt::format("{} {}", port, token); }

std::string agent_command() { return fmt::format("/proc/{}/exe {}", getpid(), kAgentCommand); }

std::string to_text(const Call& call) { return dump_json(nlohmann::json({call.host, to_text(call.daemon)})); }

Call parse_call(const std::string& text, const Runtime& runtime) {
  const nlohmann::json json = parse_fields(text, 8);
  return {.host = line_of(element(json, 0), kMaxHostName),
          .daemon = parse_daemon(text_of(element(json, 1), kMaxDaemonText), runtime)};
}

int run_agent(const std::vector<std::string>& words) {
  // mpirun starts the agent with SIGTERM unblocked, and would treat its end as the end of the daemon.
  std::signal(SIGTERM, SIG_IGN);
  const char* given = std::getenv(kAgentVariable);
  const std::string address = given == nullptr ? "" : given;
  const std::size_t space = address.find(' ');
  if (space == std::string::npos || words.size() < 2) return fail("it has no job or no command");
  try {
    std::string why;
    const auto port = static_cast<std::uint16_t>(parse_integer(address.substr(0, space), 1, 65535));
    const net::JobSecret token(address.substr(space + 1), kAgentVariable);
    const std::string call = to_text(
        Call{.host = words.front(), .daemon = read_daemon_command({words.begin() + 1, words.end()}, runtime_here())});
    net::FileDescriptor socket = net::connect_to(kHere, port, kConnectTime, why);
    if (!socket.is_open() || !net::authenticate(socket, token, net::kAgentPurpose, kConnectTime, why))
      return fail("the first task cannot be reached: " + why);
    Link link(std::move(socket), kSameHost);
    link.send({FrameKind::call, call});
    return relay(link);
  } catch (const Error& error) {
    return fail(error.what());
  }
}

}  // namespace lockstep::apps::launch
