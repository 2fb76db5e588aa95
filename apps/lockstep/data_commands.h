// lockstep data: convert, index, inspect, verify and time data sets.
#pragma once

#include <CLI/App.hpp>

namespace lockstep::apps {

/// Adds the command `data` with its own commands. They run as callbacks when `program` is parsed, write results to
/// standard output and progress to standard error where that is a terminal, and throw Error.
void add_data_commands(CLI::App& program);

}  // namespace lockstep::apps
