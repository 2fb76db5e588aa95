// Which planted defect is active.
#pragma once

namespace lockstep::inline v0::simulator {

inline int mutant = 0;  ///< its number in mutants.toml; 0: none

}  // namespace lockstep::inline v0::simulator
