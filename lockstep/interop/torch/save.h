// Saves one file for all ranks.
#pragma once

#include <torch/serialize.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "lockstep/base/file/atomic_file.h"
#include "lockstep/job/session.h"

namespace lockstep::inline v0::torch {

/// Calls torch::save(value, path) on the chief only. The file is replaced atomically. Other ranks
/// may call it too; they do not wait for the file. Throws Error (data) on the chief if the file
/// cannot be written.
template <typename Value>
void save(const job::Session& session, const Value& value, const std::filesystem::path& path) {
  if (!session.is_chief()) return;
  std::ostringstream stream;
  ::torch::save(value, stream);
  write_file_atomically(path, stream.view());
}

}  // namespace lockstep::inline v0::torch
