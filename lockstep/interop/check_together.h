// Checks that fail on all ranks if they fail on one.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lockstep/job/workers.h"

namespace lockstep::inline v0::interop {

/// Runs `check` on every rank. If it throws Error on any rank, all ranks throw Error, so that none
/// waits forever. All ranks also throw if the returned texts differ: they describe arguments that
/// must be the same on all ranks. Errors name `where`. Collective.
void check_together(job::Workers& workers, std::string_view where,
                    const std::function<std::string()>& check);

}  // namespace lockstep::inline v0::interop
