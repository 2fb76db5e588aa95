// Why a rank fails.
#pragma once

#include <string>

namespace lockstep::inline v0::job {

/// Why a rank ends.
struct Failure {
  std::string message;       ///< "[where] expected …, got …"
  int exit_status = 1;       ///< the exit status (lockstep/base/error.h)
  bool consequence = false;  ///< a failed collective: probably caused by another rank's failure
};

/// Describes the current exception. Call it from a catch block.
Failure describe_current_exception();

}  // namespace lockstep::inline v0::job
