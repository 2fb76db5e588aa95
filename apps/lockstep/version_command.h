// lockstep version
#pragma once

#include <CLI/App.hpp>

namespace lockstep::apps {

/// Adds the command: what the program was built with, and what it loaded.
void add_version_command(CLI::App& program);

}  // namespace lockstep::apps
