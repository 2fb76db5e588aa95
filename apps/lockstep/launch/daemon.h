// The facts that a host needs to start its mpirun daemon. The host checks each of them and builds
// the command line itself, so that no text from the network is executed as a command.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/launch/job_plan.h"

namespace lockstep::inline v0::apps::launch {

struct DaemonFacts {
  std::string job = {};  ///< mpirun's name of the job: "123", "prterun-host-123@0"
  int number = 0;        ///< number of the daemon, from 1
  int daemons = 0;       ///< number of daemons, including mpirun itself
  /// Nodes of the job in mpirun's syntax; empty if the daemon requests them itself.
  std::string nodes = {};
  std::string uri = {};  ///< contact address of mpirun: "123.0;tcp://10.0.0.1:40000"
  /// Parameters of Open MPI that may be sent.
  std::vector<std::pair<std::string, std::string>> parameters = {};
  std::vector<int> processors = {};  ///< affinity of the daemon and its ranks

  bool operator==(const DaemonFacts&) const = default;
};

/// Extracts the facts from the command that mpirun would run through ssh to start a daemon.
/// Parameters that may not be sent are omitted, because the host has the command line and
/// environment of its own task. Throws Error (communication) if a fact is missing or invalid.
DaemonFacts read_daemon_command(const std::vector<std::string>& words, const Runtime& runtime);

std::string to_text(const DaemonFacts& facts);
/// Checks every fact; throws Error (communication).
DaemonFacts parse_daemon(const std::string& text, const Runtime& runtime);

/// The numeric addresses in `uri`. Throws Error (communication) if it is not a contact address of
/// mpirun.
std::vector<std::string> addresses_of_uri(const std::string& uri);

/// The daemon's command line. `more`: mpirun options of this host's task; their Open MPI parameters
/// are added unless the facts contain them. `as_root`: whether this user is root.
std::vector<std::string> daemon_command(const DaemonFacts& facts,
                                        const std::vector<std::string>& more, bool as_root,
                                        const Runtime& runtime);

// The agent, which mpirun starts instead of ssh. It forwards the command to the first task, which
// forwards it to the host.

/// Environment variable with the port of the first task and the agents' token.
inline constexpr const char* kAgentVariable = "LOCKSTEP_LAUNCH_AGENT";
/// The command of this program that runs an agent.
inline constexpr const char* kAgentCommand = "launch-agent";

/// The value of kAgentVariable. `port`: on 127.0.0.1. `token`: the secret of this mpirun's agents.
std::string agent_address(std::uint16_t port, const std::string& token);
/// The value of mpirun's parameter plm_rsh_agent: a command that runs this program as an agent. It
/// refers to /proc because mpirun splits paths at spaces, and is valid while this process runs.
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

/// `words`: the host, then the command, as for ssh. Only the facts in the command are sent to the
/// host. Prints the daemon's output, and returns its exit status, or 255 if it cannot be started.
/// Ignores SIGTERM, as mpirun does here (child.h).
int run_agent(const std::vector<std::string>& words);

}  // namespace lockstep::inline v0::apps::launch
