#pragma once

#include <CLI/App.hpp>

#include "lockstep/base/error.h"

namespace lockstep::apps {

/// What CLI11 has to say about a command line, as an Error (input) of one line. An unknown option or command is
/// answered with the nearest known one.
Error to_error(const CLI::ParseError& error, const CLI::App& program);

}  // namespace lockstep::apps
