// What mpirun starts in place of ssh: it hands the command over to the first task, which hands it to the host.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/lockstep/launch/daemon.h"

namespace lockstep::apps::launch {

/// The variable that tells an agent of its first task.
inline constexpr const char* kAgentVariable = "LOCKSTEP_LAUNCH_AGENT";
/// The command of the program that is an agent.
inline constexpr const char* kAgentCommand = "launch-agent";

/// `port`: of 127.0.0.1. `token`: the secret of this mpirun's agents.
std::string agent_address(std::uint16_t port, const std::string& token);
/// For mpirun's plm_rsh_agent, while this process lives: its program, as an agent. mpirun would cut the program's own
/// path at spaces.
std::string agent_command();

/// What an agent asks for.
struct Call {
  std::string host = {};
  DaemonFacts daemon = {};  ///< without processors, which the first task knows

  bool operator==(const Call&) const = default;
};
std::string to_text(const Call& call);
/// Throws Error (communication) for what is none.
Call parse_call(const std::string& text, const Runtime& runtime);

/// `words`: the host, then the command, as ssh takes them; only the facts in it go to the host. Prints what the daemon
/// prints, and returns its exit status; 255 where it cannot be started. Does not hear SIGTERM, as mpirun does not
/// (child.h).
int run_agent(const std::vector<std::string>& words);

}  // namespace lockstep::apps::launch
