// lockstep checkpoint inspect | verify | export
#pragma once

#include <CLI/CLI.hpp>
#include <iostream>

namespace lockstep::apps {

/// Adds the command to `program`. It runs when `program` is parsed, writes to `out`, and throws Error (checkpoint).
void add_checkpoint_command(CLI::App& program, std::ostream& out = std::cout);

}  // namespace lockstep::apps
