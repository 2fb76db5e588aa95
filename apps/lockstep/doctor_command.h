// lockstep doctor
#pragma once

#include <CLI/App.hpp>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

/// Adds the command. Its callback sets `status`, the exit status of the program: 0 where nothing is wrong, 1 where
/// there is a problem, 4 where ranks did not come together or stopped answering.
void add_doctor_command(CLI::App& program, const Invocation& invocation, int& status);

}  // namespace lockstep::apps
