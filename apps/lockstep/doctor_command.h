// lockstep doctor
#pragma once

#include <CLI/App.hpp>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

/// Adds the command. Its callback sets `status`, the exit status of the program: 0 if there is no problem, 1 if there
/// is one, 4 if ranks did not connect or stopped responding.
void add_doctor_command(CLI::App& program, const Invocation& invocation, int& status);

}  // namespace lockstep::apps
