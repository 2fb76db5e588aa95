#pragma once

#include <cstddef>
#include <string>

#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// Maximum size of a protobuf message.
inline constexpr std::size_t kMaxModelBytes = (std::size_t{1} << 31) - 1;

/// Serializes `model` as ModelProto of onnx.proto, byte for byte as Python's onnx does. Operator
/// domains other than that of ONNX have version 1. Tensors must be numeric. Throws Error (input)
/// above `limit` bytes.
std::string write_model(const Model& model, std::size_t limit = kMaxModelBytes);

}  // namespace lockstep::inline v0::onnx
