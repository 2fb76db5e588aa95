// Files of torch.save: an uncompressed zip archive of a pickle and the arrays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::inline v0::checkpoint {

/// Writes `tensors`, in their order, as a dictionary of tensors by name, which torch.load reads,
/// even with weights_only. The file appears complete or not at all; its bytes depend only on
/// `tensors`. Returns its size. Throws Error (checkpoint) with the path if it cannot be written, or
/// would have 4 GiB or more.
std::uint64_t write_torch_file(const std::filesystem::path& path,
                               std::span<const TensorView> tensors);

}  // namespace lockstep::inline v0::checkpoint
