// Reads ONNX files: protobuf messages of onnx.proto (github.com/onnx/onnx).
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// Reads the bytes of a file. `where` identifies it in messages. The bytes of each tensor match its
/// shape and type. Throws Error (input) for invalid models, for control flow and sparse tensors,
/// for weights in other files ("external data"), and above 2^16 nodes, 2^20 names or 2 GiB, which
/// is the limit of protobuf.
Model read_model(std::string_view bytes, std::string_view where = "onnx");

/// Reads a file. Throws Error (input) also if it cannot be read.
Model read_model_file(const std::filesystem::path& file);

}  // namespace lockstep::inline v0::onnx
