// Checks whose failure on one rank is the failure of all.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/job/session.h"

namespace lockstep::interop {

/// Runs `check` on every rank. What it throws of type Error on one rank alone is thrown by all, so that none waits for
/// it, and so is that ranks return other texts: what they were given and must have in common; errors name `where`.
/// Collective.
void check_together(job::Workers& workers, std::string_view where, const std::function<std::string()>& check);

}  // namespace lockstep::interop
