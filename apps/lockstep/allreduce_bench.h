// lockstep allreduce-bench
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "apps/lockstep/arguments.h"
#include "lockstep/allreduce/route.h"

namespace lockstep::apps {

/// Parses a list such as "ring,mpi". Throws Error (input).
std::vector<allreduce::Route> parse_routes(const std::string& list);

/// Adds the command. Its callback sets `status`, the exit status of the program.
void add_allreduce_bench_command(CLI::App& program, const Invocation& invocation, int& status);

}  // namespace lockstep::apps
