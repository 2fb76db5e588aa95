// One file for all ranks.
#pragma once

#include <torch/serialize.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "lockstep/base/atomic_file.h"
#include "lockstep/job/session.h"

namespace lockstep::torch {

/// torch::save(value, path) on the chief alone, and so that `path` is the old file or the whole new one at any moment.
/// Called by all ranks, which may go on before the file is there. Throws Error (data) on the chief where the file
/// cannot be written.
template <typename Value>
void save(const job::Session& session, const Value& value, const std::filesystem::path& path) {
  if (!session.is_chief()) return;
  std::ostringstream stream;
  ::torch::save(value, stream);
  write_file_atomically(path, stream.view());
}

}  // namespace lockstep::torch
