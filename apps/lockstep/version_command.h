// lockstep version
#pragma once

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::apps {

/// The output of `lockstep --version`, such as "lockstep 0.1.0".
std::string version_line();

/// The output of `lockstep version --json`: the program's version, compiler, build and processor, the number of cores,
/// and for each library an object with the versions `built` and `loaded`. May be called before MPI_Init.
nlohmann::ordered_json program_versions();

/// Adds the command.
void add_version_command(CLI::App& program);

}  // namespace lockstep::apps
