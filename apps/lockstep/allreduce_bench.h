// lockstep allreduce-bench
#pragma once

#include <CLI/App.hpp>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

/// Adds the command. Its callback sets `status`, the exit status of the program.
void add_allreduce_bench_command(CLI::App& program, const Invocation& invocation, int& status);

}  // namespace lockstep::apps
