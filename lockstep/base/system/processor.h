// What this build requires of the processor.
#pragma once

namespace lockstep::inline v0 {

/// Does nothing: who calls it links the check, which runs when the program or the library is
/// loaded, before code that the processor may lack. If the build requires instructions that this
/// processor does not have, the process ends there with status 5 and one line that names them.
void require_processor();

}  // namespace lockstep::inline v0
