#pragma once

#include <cstdint>
#include <string>

#include "lockstep/onnx/model.h"

namespace lockstep::onnx {

/// The most samples that triton_config() lets the server compute together.
inline constexpr std::int64_t kMaxTritonBatch = 64;

/// config.pbtxt of NVIDIA's Triton Inference Server for `model`, whose folder is called `name`: the
/// backend onnxruntime, inputs and outputs without their first axis, and dynamic batches. With
/// `has_labels` the first output has the class names of a file labels.txt.
std::string triton_config(const Model& model, const std::string& name, bool has_labels);

}  // namespace lockstep::onnx
