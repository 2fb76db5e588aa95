// The two functions of lockstep_torchscript.so, which the program loads for a TorchScript file. It
// resolves the symbols of Lockstep in the program, so both must come from the same build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/model/layer/layer.h"

namespace lockstep::inline v0::torch {

/// The file name of the plugin.
inline constexpr const char* kTorchScriptPlugin = "lockstep_torchscript.so";

/// The version of Lockstep that the plugin was built for.
inline constexpr const char* kPluginVersionName = "lockstep_torchscript_version";
using PluginVersion = const char*();

/// Sets `layer` to a ModuleLayer for a TorchScript file with the contents `content`, so that the
/// bytes that were checked are those that run. `name` is for messages, `index_count` as in
/// ModuleOptions.
/// Throws Error (input) if this LibTorch cannot read the file.
inline constexpr const char* kMakeScriptLayerName = "lockstep_torchscript_layer";
using MakeScriptLayer = void(const std::shared_ptr<const std::string>& content,
                             const std::string& name, std::int64_t index_count,
                             std::shared_ptr<const model::Layer>& layer);

}  // namespace lockstep::inline v0::torch
