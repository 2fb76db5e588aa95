// Files of ONNX: messages of protobuf, as onnx.proto describes them (github.com/onnx/onnx).
#pragma once

#include <filesystem>
#include <string_view>

#include "lockstep/onnx/model.h"

namespace lockstep::onnx {

/// Reads the bytes of a file. `where` identifies it in messages. Every tensor of the result has as
/// many bytes as its shape and type say. Throws Error (input) for bytes that are no ONNX model, for
/// control flow and sparse tensors, for weights in other files ("external data"), and above 2^16
/// nodes, 2^20 names or 2 GiB, which is the limit of protobuf.
Model read_model(std::string_view bytes, std::string_view where = "onnx");

/// The same from a file. Throws Error (input) also if it cannot be read.
Model read_model_file(const std::filesystem::path& file);

}  // namespace lockstep::onnx
