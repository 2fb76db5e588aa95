#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

inline constexpr const char* kLaunchCommand = "launch";

/// `lockstep launch -- COMMAND…`: runs a command as one MPI job from processes that were started without MPI.
void add_launch_command(CLI::App& program, const Invocation& invocation, int& status);

/// The arguments of `lockstep launch` up to `--`, without the command to start, which has its own options. Arguments of
/// other commands are returned unchanged. Throws Error (input) if there is no command to start.
std::vector<std::string> without_launched_command(std::vector<std::string> arguments);

}  // namespace lockstep::apps
