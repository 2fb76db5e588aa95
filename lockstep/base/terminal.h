// The terminal that a descriptor is connected to.
#pragma once

#include <cstddef>
#include <string>
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

/// Wraps `text`, which starts at `column`, between words to lines of `width` columns, each
/// continued with `column` spaces. A longer word is not broken. Several blanks become one.
std::string wrap_words(std::string_view text, std::size_t column, std::size_t width);

}  // namespace lockstep::inline v0
