#pragma once

#include <string>

#include "lockstep/onnx/model.h"

namespace lockstep::onnx {

/// The bytes of an ONNX file (ModelProto of onnx.proto3) with `model`. The same model gives the
/// same bytes. Domains of operators other than that of ONNX have version 1. Tensors have a type of
/// numbers. Throws Error (input) if there are 2 GiB or more, which protobuf does not read.
std::string write_model(const Model& model);

}  // namespace lockstep::onnx
