// The terminal that a descriptor is connected to.
#pragma once

#include <string_view>

namespace lockstep {

/// Whether `descriptor` is connected to a terminal, so that a line can be overwritten. mpirun gives
/// its ranks a pseudo-terminal in any case; under mpirun, the launcher's output decides.
bool is_watched(int descriptor);

/// What a message on standard error begins with: on a terminal, a sequence that clears the current
/// line, which may be one that is updated in place; empty elsewhere.
std::string_view message_start();

/// Columns of the terminal of `descriptor`: its present width, which changes when the window is
/// resized; if it has none, that of the environment variable COLUMNS, or 80.
int terminal_columns(int descriptor);

}  // namespace lockstep
