// Messages for errors of the command line, which replace those of CLI11.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::inline v0::apps {

/// Converts an error of CLI11 to a one-line Error (input) that names options as they were typed in
/// `arguments` (without the program's name). For an unknown option or command, suggests the most
/// similar known name, or the one that has this name in other programs. nullopt for a request for
/// help or the version, unless it names an unknown command.
std::optional<Error> to_error(const CLI::ParseError& error, const CLI::App& program,
                              const std::vector<std::string>& arguments);

/// An option as typed: its name and value, such as --batch-size and "64".
struct TypedOption {
  std::string name;
  std::string value;
};

/// The Error (input) with `where` for a value that is not of the option's type.
Error wrong_value(const CLI::Option& option, const TypedOption& typed, const std::string& where);

/// `got "--modle" (did you mean --model?)`, with a name known to `command`.
std::string got_word(const std::string& word, const CLI::App& command);

/// "lockstep train (`lockstep train --help` lists them)"
std::string command_and_help(const CLI::App& command);

}  // namespace lockstep::inline v0::apps
