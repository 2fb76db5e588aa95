// TorchScript files.
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/interop/torch/module/any_module.h"

namespace lockstep::inline v0::torch {

/// Loads a file of torch.jit.save. Throws Error (data) if LibTorch cannot read it. The file is a
/// program: forward() of the module runs it.
AnyModule load_script(const std::filesystem::path& script);
/// Loads the contents of such a file; `name` is for messages.
AnyModule load_script(const std::string& content, const std::string& name);

}  // namespace lockstep::inline v0::torch
