// The terminal that a descriptor is connected to.
#pragma once

#include <string_view>

namespace lockstep::inline v0 {

/// Whether `descriptor` is connected to a terminal, so that a line can be overwritten. Under
/// mpirun, whose ranks always have a pseudo-terminal, the launcher's output decides.
bool is_watched(int descriptor);

/// Prefix of a message on standard error: on a terminal, a sequence that clears the current line,
/// which may be a progress line; otherwise empty.
std::string_view message_start();

/// Current width of the terminal of `descriptor` in columns; if unknown, the environment variable
/// COLUMNS, or 80.
int terminal_columns(int descriptor);

}  // namespace lockstep::inline v0
