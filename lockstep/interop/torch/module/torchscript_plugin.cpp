#include "lockstep/interop/torch/module/torchscript_plugin.h"

#include <torch/version.h>

#include <string>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/version.h"
#include "lockstep/interop/torch/module/module_layer.h"

namespace lockstep::inline v0::torch {

extern "C" PluginVersion lockstep_torchscript_version;
extern "C" MakeScriptLayer lockstep_torchscript_layer;

const char* lockstep_torchscript_version() { return LOCKSTEP_VERSION; }

void lockstep_torchscript_layer(const std::shared_ptr<const std::string>& content,
                                const std::string& name, std::int64_t index_count,
                                std::shared_ptr<const model::Layer>& layer) {
  try {
    layer = std::make_shared<const ModuleLayer>(content, name,
                                                ModuleOptions{.index_count = index_count});
  } catch (const Error& error) {
    std::string reason = error.message().actual;
    // A file of another version fails an assertion of LibTorch, in one of two forms.
    for (const std::string_view before : {"please report a bug to PyTorch. ", "] . "})
      if (const std::size_t at = reason.find(before); at != std::string::npos)
        reason = "LibTorch: " + reason.substr(at + before.size());
    throw Error(ErrorCategory::input, name,
                "expected a TorchScript file for LibTorch " TORCH_VERSION, reason);
  }
}

}  // namespace lockstep::inline v0::torch
