// The files of torch.save: a zip archive, without compression, of a pickle and the arrays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::checkpoint {

/// Writes `tensors`, in their order, as a dictionary of tensors by name, which torch.load reads,
/// also with weights_only. The file appears complete or not at all; the same tensors give the same
/// bytes. Returns its size. Throws Error (checkpoint) with the path if it cannot be written, or
/// would have 4 GiB or more.
std::uint64_t write_torch_file(const std::filesystem::path& path,
                               std::span<const TensorView> tensors);

}  // namespace lockstep::checkpoint
