// lockstep train
#pragma once

#include <CLI/App.hpp>

#include "apps/lockstep/arguments.h"

namespace lockstep::apps {

/// Adds the command. Its callback runs the training and sets `status`, the exit status of the program.
void add_train_command(CLI::App& program, const Invocation& invocation, int& status);

}  // namespace lockstep::apps
