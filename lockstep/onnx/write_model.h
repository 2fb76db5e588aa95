#pragma once

#include <cstddef>
#include <string>

#include "lockstep/onnx/model.h"

namespace lockstep::onnx {

/// What protobuf reads: less than 2 GiB.
inline constexpr std::size_t kMaxModelBytes = (std::size_t{1} << 31) - 1;

/// The bytes of an ONNX file (ModelProto of onnx.proto) with `model`: those that Python's onnx
/// writes, the same each time. Domains of operators other than that of ONNX have version 1. Tensors
/// have a type of numbers. Throws Error (input) if they are more than `limit`.
std::string write_model(const Model& model, std::size_t limit = kMaxModelBytes);

}  // namespace lockstep::onnx
