#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/onnx/model.h"

namespace lockstep::inline v0::onnx {

/// Maximum batch size in triton_config().
inline constexpr std::int64_t kMaxTritonBatch = 64;

/// config.pbtxt of NVIDIA's Triton Inference Server for `model`, whose folder is called `name`: the
/// backend onnxruntime, inputs and outputs without their first axis, and dynamic batches. The
/// output with the index `labelled` uses the class names of labels.txt.
std::string triton_config(const Model& model, const std::string& name,
                          std::optional<std::size_t> labelled);

}  // namespace lockstep::inline v0::onnx
