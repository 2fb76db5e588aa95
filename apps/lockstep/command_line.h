// The command line as a whole: `help COMMAND`, and --config FILE, which reads the options of a
// command from a file that --print-config writes.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::apps {

/// Returns `arguments` (without the program's name) with `help COMMAND` replaced by `COMMAND
/// --help`.
std::vector<std::string> without_help_command(std::vector<std::string> arguments);

/// Throws Error (input) if `arguments` (without the program's name) give an option of the command
/// by two of its names, such as --lr and --learning-rate.
void require_one_name(const std::vector<std::string>& arguments, const CLI::App& program);

/// Declares --config and --print-config. The result is set to whether --print-config was given.
std::shared_ptr<bool> add_config_options(CLI::App& command);

/// The options of a parsed command in the format of --config: `name=value` lines, including
/// defaults.
std::string config_text(const CLI::App& command);
/// Prints config_text(). Throws Error (input) for a value that a line of it cannot have.
void print_config_text(const CLI::App& command);
/// The names and values in a text of config_text(), without options that are not set.
std::vector<std::pair<std::string, std::string>> config_values(const std::string& text);

/// Returns `arguments` (without the program's name) extended by the options of the --config file,
/// if one is given. Options on the command line take precedence. The file has `name=value` lines,
/// at the top or in a section `[COMMAND]`; sections of other commands are ignored. Throws Error
/// (input) with the path of the file if it cannot be read, or if a line is not a valid option of
/// the command of `program`.
std::vector<std::string> with_config_file(std::vector<std::string> arguments, CLI::App& program);

}  // namespace lockstep::apps
