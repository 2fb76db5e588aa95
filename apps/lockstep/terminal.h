// Whether somebody watches.
#pragma once

namespace lockstep::apps {

/// Whether `descriptor` of this process ends at a terminal, so that a line may be written over. mpirun gives its ranks
/// a pseudo-terminal whatever its own output is; then the launcher's output decides.
bool is_watched(int descriptor);

}  // namespace lockstep::apps
