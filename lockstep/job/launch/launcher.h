// Detects from the environment which launcher started this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/allreduce/transport/mpi/mpi_loader.h"

namespace lockstep::inline v0::job {

/// The job of this process, according to its environment.
struct Launch {
  /// Whether a launcher such as mpirun or srun started this process as a rank.
  bool launched = false;
  int rank = 0;          ///< rank of this process
  int ranks = 1;         ///< 0 if unknown
  std::string launcher;  ///< human-readable name; empty without one
  bool connects = true;  ///< whether it connects MPI ranks; a plain srun does not
  /// The kinds of MPI whose ranks it connects, the likeliest first.
  std::vector<allreduce::MpiKind> mpi = {allreduce::MpiKind::open_mpi, allreduce::MpiKind::mpich};
};

/// Set by `lockstep launch`, whose ranks share its output.
inline constexpr const char* kLaunchedRankVariable = "LOCKSTEP_LAUNCHED_RANK";

/// Looks up a variable; null if it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Detects Open MPI's mpirun, launchers that use PMI (MPICH's mpiexec, srun --mpi=pmi2) or PMIx
/// (srun --mpi=pmix), `lockstep launch`, and a plain srun step.
Launch detect_launch(const Environment& environment);
/// Uses this process's environment.
Launch detect_launch();

/// The environment of this process.
Environment process_environment();

}  // namespace lockstep::inline v0::job
