// lockstep version
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace lockstep::apps {

/// The name and the version, such as "lockstep 0.1.0": what `lockstep --version` prints.
std::string version_line();

/// Adds the command: what the program was built with, and what it loaded.
void add_version_command(CLI::App& program);

}  // namespace lockstep::apps
