// The agent, which mpirun starts instead of ssh. It forwards the command to the first task, which forwards it to the
// host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lockstep/launch/daemon.h"

namespace lockstep::apps::launch {

/// Environment variable with the port of the first task and the agents' token.
inline constexpr const char* kAgentVariable = "LOCKSTEP_LAUNCH_AGENT";
/// The command of this program that runs an agent.
inline constexpr const char* kAgentCommand = "launch-agent";

/// The value of kAgentVariable. `port`: on 127.0.0.1. `token`: the secret of this mpirun's agents.
std::string agent_address(std::uint16_t port, const std::string& token);
/// The value of mpirun's parameter plm_rsh_agent: a command that runs this program as an agent. It refers to /proc
/// because mpirun splits paths at spaces, and is valid while this process runs.
std::string agent_command();

/// A request of an agent to start a daemon.
struct Call {
  std::string host = {};
  DaemonFacts daemon = {};  ///< without processors, which the first task adds

  bool operator==(const Call&) const = default;
};
std::string to_text(const Call& call);
/// Throws Error (communication) for invalid text.
Call parse_call(const std::string& text, const Runtime& runtime);

/// `words`: the host, then the command, as for ssh. Only the facts in the command are sent to the host. Prints the
/// daemon's output, and returns its exit status, or 255 if it cannot be started. Ignores SIGTERM, as mpirun does here
/// (child.h).
int run_agent(const std::vector<std::string>& words);

}  // namespace lockstep::apps::launch
