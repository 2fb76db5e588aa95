// Which processors the system lets a thread run on, by their numbers; however many the host has.
#pragma once

#include <vector>

namespace lockstep::device {

/// Those of the calling thread's affinity mask, as mpirun or taskset set it, ascending; empty where the system does not
/// tell.
std::vector<int> allowed_processors();

/// Those that a mask could name: of the host, or of the set that a container or batch system confines this process to.
/// Changes the mask of the calling thread and changes it back.
std::vector<int> processors_of_cpu_set();

}  // namespace lockstep::device
