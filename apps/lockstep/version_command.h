// lockstep version
#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::apps {

/// The name and the version, such as "lockstep 0.1.0": what `lockstep --version` prints.
std::string version_line();

/// What `lockstep version --json` prints: a text for the program's version, compiler, build and processor, a number of
/// cores, and for each library an object of what was `built` with and what is `loaded`. May be asked without MPI_Init.
nlohmann::ordered_json program_versions();

/// Adds the command: what the program was built with, and what it loaded.
void add_version_command(CLI::App& program);

}  // namespace lockstep::apps
