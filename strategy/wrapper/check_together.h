// Checks whose failure on one rank is the failure of all.
#pragma once

#include <functional>

#include "strategy/workers.h"

namespace lockstep::strategy {

/// Runs `check` on every rank. What it throws of type Error on one rank alone is thrown by all, so that none waits for
/// it. Collective.
void check_together(Workers& workers, const std::function<void()>& check);

}  // namespace lockstep::strategy
