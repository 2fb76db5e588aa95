// TorchScript files as networks. The program is not linked with LibTorch, so that it starts fast
// and runs without LibTorch. Instead, it loads lockstep_torchscript.so on demand, which is searched
// only in the program's folder and in ../lib/lockstep.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "lockstep/model/network/network.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::inline v0::apps {

/// Whether `name`, a value of --model, is a TorchScript file: it ends in .pt, .pth or .ts, or is
/// the path of a zip archive.
bool is_torchscript(const std::string& name);

/// The contents of a TorchScript file. Throws Error (input) if it cannot be read or is another
/// file, such as one written by torch.save.
std::shared_ptr<const std::string> read_torchscript(const std::filesystem::path& file);

/// A network of one layer: the module of a TorchScript file with these contents, whose arguments
/// are `inputs` in this order. Its name is that of the file. Runs the file, which is a program.
/// Throws Error (input), also if the plugin is not installed.
model::Network torchscript_network(const std::filesystem::path& file,
                                   const std::shared_ptr<const std::string>& content,
                                   std::span<const zoo::DataInput> inputs);

}  // namespace lockstep::inline v0::apps
