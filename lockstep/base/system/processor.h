// What this build requires of the processor.
#pragma once

namespace lockstep::inline v0 {

/// If the build requires instructions that this processor does not have, ends the process with
/// status 5 and one line that names them. Who calls it links a constructor that calls it when the
/// program or the library is loaded, before other code that may use these instructions; what runs
/// even before constructors calls it itself.
void require_processor();

}  // namespace lockstep::inline v0
