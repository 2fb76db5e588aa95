// --config FILE: the options of a command in a file, and --print-config, which writes one.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::apps {

/// Declares --config and --print-config. What is returned tells whether the latter was given.
std::shared_ptr<bool> add_config_options(CLI::App& command);

/// The options of a parsed command as the text of such a file: `name=value` lines, defaults included.
std::string config_text(const CLI::App& command);

/// `arguments` (without the program's name) with what the file after --config says, if it is there: options that stand
/// on the command line win. The file has `name=value` lines, plain or below `[COMMAND]`; what stands below other
/// commands is left out. Throws Error (input) where it cannot be read.
std::vector<std::string> with_config_file(std::vector<std::string> arguments);

}  // namespace lockstep::apps
