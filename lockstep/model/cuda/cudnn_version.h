// The cuDNN of this program, for `lockstep version`.
#pragma once

#include <string>

namespace lockstep::model {

/// The version that this program was compiled with, "9.19.0", or "absent".
std::string cudnn_built_version();
/// The version of the library that it loads when a GPU first computes, and now for this answer: "9.19.0", or "absent".
std::string cudnn_loaded_version();

}  // namespace lockstep::model
