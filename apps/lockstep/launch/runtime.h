// The runtime environment with which mpirun starts processes on hosts: ORTE in Open MPI 4, PRRTE in Open MPI 5. They
// are equivalent for `lockstep launch`, but their parameters have different names.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lockstep::apps::launch {

/// The names of one runtime environment.
struct Runtime {
  std::string_view name;                         ///< in messages
  std::string_view daemon;                       ///< program on each host
  std::string_view option;                       ///< option that sets a parameter, of the daemon and of mpirun
  std::string_view job;                          ///< parameter: mpirun's name for the job
  std::string_view nodes;                        ///< parameter: the hosts of the job; empty: the daemon requests them
  std::string_view uri;                          ///< parameter: where mpirun listens
  std::string_view launcher;                     ///< component that starts daemons with a program such as ssh
  std::string_view agent;                        ///< parameter: that program
  std::string_view agent_options;                ///< parameter: its options; empty: mpirun rejects empty options
  std::string_view no_tree;                      ///< parameter: mpirun itself starts all daemons
  std::string_view full_names;                   ///< parameter: host names are not shortened at the first dot
  std::string_view interfaces;                   ///< parameter: networks of mpirun and its daemons
  std::span<const std::string_view> may_be_set;  ///< parameters that mpirun may set on another host
  bool is_prrte;
};

extern const Runtime kOrte;
extern const Runtime kPrrte;

/// The runtime of the Open MPI that this program is linked to. Throws Error (input) for another MPI.
const Runtime& runtime_here();

/// The runtime for a version text of MPI, "Open MPI v4.1.4, package: …". Throws Error (input) for another MPI.
const Runtime& runtime_of(std::string_view mpi);

}  // namespace lockstep::apps::launch
