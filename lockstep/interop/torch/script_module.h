// TorchScript files.
#pragma once

#include <filesystem>

#include "lockstep/interop/torch/any_module.h"

namespace lockstep::torch {

/// The module of a file that torch.jit.save has written. Throws Error (data) if LibTorch cannot
/// read it.
AnyModule load_script(const std::filesystem::path& script);

}  // namespace lockstep::torch
