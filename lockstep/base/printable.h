// Makes texts from files, networks and the environment safe for terminals and logs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::inline v0 {

/// Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none.
std::size_t utf8_length(std::string_view text);

/// `text` without anything that controls a terminal or forges a line of a log: control characters
/// (C0, DEL, C1), line separators, characters that change the direction of writing, and bytes that
/// are not UTF-8 become `\n`, `\r`, `\t` or their bytes as `\x1b`. The characters of `kept` and
/// everything else, backslashes too, are unchanged, so that a second call changes nothing.
///
/// Error and the loggers of make_logger() apply it themselves. Code that prints names, such as
/// those of columns, classes, tensors and files, applies it to each name.
std::string printable(std::string_view text, std::string_view kept = {});

}  // namespace lockstep::inline v0
