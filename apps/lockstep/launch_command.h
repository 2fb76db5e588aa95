#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

inline constexpr const char* kLaunchCommand = "launch";

/// `lockstep launch -- COMMAND…`: one MPI job out of processes that were started without MPI.
void add_launch_command(CLI::App& program, const Invocation& invocation, int& status);

/// The arguments of this program without the command that `lockstep launch` is to start, which has options of its own:
/// all before `--`. Those of other commands are returned as they are. Throws Error (input) where there is no such
/// command.
std::vector<std::string> without_launched_command(std::vector<std::string> arguments);

}  // namespace lockstep::apps
