// Which launcher started this process, read from its environment: before MPI is initialised, and without it.
#pragma once

#include <functional>
#include <string>

namespace lockstep::job {

/// What the environment says about the job this process belongs to.
struct Launch {
  bool launched = false;  ///< whether a launcher such as mpirun or srun started this process as a rank
  int rank = 0;           ///< of this process, from 0
  int ranks = 1;          ///< 0 where the launcher does not tell
  std::string launcher;   ///< for people; empty without one
  bool connects = true;   ///< whether it tells MPI of the other ranks; a plain srun does not
};

/// Looks a variable up; null where it is not set.
using Environment = std::function<const char*(const char* name)>;

/// Knows Open MPI's mpirun, launchers that speak PMI (MPICH's mpiexec, srun --mpi=pmi2) or PMIx (srun --mpi=pmix), and
/// a plain srun step.
Launch detect_launch(const Environment& environment);
/// From this process's environment.
Launch detect_launch();

/// The environment of this process.
Environment process_environment();

}  // namespace lockstep::job
