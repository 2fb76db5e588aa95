// The terminal that a descriptor is connected to.
#pragma once

namespace lockstep {

/// Whether `descriptor` is connected to a terminal, so that a line can be overwritten. mpirun gives
/// its ranks a pseudo-terminal in any case; under mpirun, the launcher's output decides.
bool is_watched(int descriptor);

/// Columns of the terminal of `descriptor`: its present width, which changes when the window is
/// resized; if it has none, that of the environment variable COLUMNS, or 80.
int terminal_columns(int descriptor);

}  // namespace lockstep
