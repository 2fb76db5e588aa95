// The command line as a whole: `help COMMAND`, and --config FILE, which reads the options of a
// command from a file that --print-config writes.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::inline v0::apps {

/// Returns `arguments` (without the program's name) with `help COMMAND` replaced by `COMMAND
/// --help`.
std::vector<std::string> without_help_command(std::vector<std::string> arguments);

/// The schema (schema_of()) of the command that `arguments` name, with those below it, if they ask
/// for --help and --json.
std::optional<std::string> help_as_json(const std::vector<std::string>& arguments,
                                        const CLI::App& program);

/// Throws Error (input) if `arguments` (without the program's name) give an option of the command
/// by two of its names, such as --lr and --learning-rate.
void require_one_name(const std::vector<std::string>& arguments, const CLI::App& program);

/// Declares --config and --print-config. The result is set to whether --print-config was given.
std::shared_ptr<bool> add_config_options(CLI::App& command);

/// Returns `arguments` (without the program's name) extended by the options of the --config file,
/// if one is given. Options on the command line take precedence. The file has `name=value` lines,
/// at the top or in a section `[COMMAND]`; sections of other commands are ignored. Throws Error
/// (input) with the path of the file if it cannot be read, or if a line is not a valid option of
/// the command of `program`.
std::vector<std::string> with_config_file(std::vector<std::string> arguments, CLI::App& program);

}  // namespace lockstep::inline v0::apps
