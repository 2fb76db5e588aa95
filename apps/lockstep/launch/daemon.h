// What a host is told so that it can start its daemon of mpirun: facts, each of which is checked there. The words of
// the command line are put together on the host itself; no text that came over a network is a command.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/lockstep/launch/runtime.h"

namespace lockstep::apps::launch {

struct DaemonFacts {
  std::string job = {};    ///< mpirun's name for it: "123", "prterun-host-123@0"
  int number = 0;          ///< of the daemon, from 1
  int daemons = 0;         ///< mpirun itself included
  std::string nodes = {};  ///< of the job, as mpirun writes them, where the daemon does not ask for them
  std::string uri = {};    ///< where mpirun listens: "123.0;tcp://10.0.0.1:40000"
  std::vector<std::pair<std::string, std::string>> parameters = {};  ///< of Open MPI, out of those that may be sent
  std::vector<int> processors = {};                                  ///< that the daemon and its ranks may run on

  bool operator==(const DaemonFacts&) const = default;
};

/// The facts in the words with which mpirun would have ssh start a daemon. Parameters that may not be sent are left
/// out: the host has the command line and the environment of its own task. Throws Error (communication) where a fact is
/// missing or is not what it is to be.
DaemonFacts read_daemon_command(const std::vector<std::string>& words, const Runtime& runtime);

std::string to_text(const DaemonFacts& facts);
/// Checks every fact; throws Error (communication).
DaemonFacts parse_daemon(const std::string& text, const Runtime& runtime);

/// The numeric addresses in `uri`. Throws Error (communication) for what is no contact address of mpirun.
std::vector<std::string> addresses_of_uri(const std::string& uri);

/// The daemon's command line. `more`: the options of mpirun that this host's task was given, whose parameters of Open
/// MPI are taken where the facts do not have them. `as_root`: this user is root.
std::vector<std::string> daemon_command(const DaemonFacts& facts, const std::vector<std::string>& more, bool as_root,
                                        const Runtime& runtime);

}  // namespace lockstep::apps::launch
