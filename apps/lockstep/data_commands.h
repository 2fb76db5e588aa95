// lockstep data: convert, index, inspect, verify and benchmark data sets.
#pragma once

#include <CLI/App.hpp>

namespace lockstep::apps {

/// Adds the command `data` with its subcommands. They run as callbacks when `program` is parsed, print results on
/// standard output and progress on standard error if that is a terminal, and throw Error.
void add_data_commands(CLI::App& program);

}  // namespace lockstep::apps
