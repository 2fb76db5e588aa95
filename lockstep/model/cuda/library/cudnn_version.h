// The cuDNN versions of this program, for `lockstep version`.
#pragma once

#include <string>

namespace lockstep::inline v0::model {

/// The version used at compile time, "9.19.0", or "absent".
std::string cudnn_built_version();
/// The version of the library that is loaded when a GPU is first used; this call also loads it.
/// "9.19.0", or "absent".
std::string cudnn_loaded_version();

}  // namespace lockstep::inline v0::model
