// Indices of weights that are divided into several safetensors files, as model hubs store them:
// {"metadata": {"total_size": BYTES}, "weight_map": {"TENSOR": "model-00001-of-00002.safetensors"}}
#pragma once

#include <filesystem>
#include <vector>

#include "lockstep/checkpoint/safetensors.h"

namespace lockstep::inline v0::checkpoint {

/// The ending of the name of an index.
inline constexpr const char* kIndexEnding = ".safetensors.index.json";

/// Opens the files that an index names, in the order of their names. They are in its folder: a name
/// with a separator is rejected. Throws Error (checkpoint) for an index that is damaged, a file
/// that is missing or damaged, a tensor that the index and its file do not both have, and a
/// total_size that is not the size of all tensors.
std::vector<SafetensorsFile> open_shards(const std::filesystem::path& index);

}  // namespace lockstep::inline v0::checkpoint
