// Where initial weights are stored: in safetensors files, in a checkpoint, or in an ONNX graph.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/model/network/network.h"
#include "lockstep/onnx/import.h"
#include "lockstep/train/options/weight_names.h"

namespace lockstep::inline v0::train {

/// A tensor of a file of weights.
struct StoredTensor : checkpoint::SafetensorsFile::Entry {
  const checkpoint::SafetensorsFile* file = nullptr;  ///< the file that has it; null for ONNX
};

/// The file that `source` names: itself; that of the newest undamaged checkpoint in the directory,
/// an unhealthy one only if there is no other; or model.safetensors or
/// model.safetensors.index.json of a folder of a model hub. `log` receives what was assumed. Throws
/// Error (checkpoint) for a directory with none of them.
std::filesystem::path find_weights(const std::filesystem::path& source, Logger& log);

/// A file of weights: safetensors, an index of several (checkpoint::open_shards()), or ONNX.
class WeightsFile {
 public:
  /// Opens it and reads its header, or all of an ONNX file. Throws Error.
  WeightsFile(const std::filesystem::path& path, const model::Network& network);
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;

  const std::filesystem::path& path() const { return path_; }  ///< as it was opened
  bool is_onnx() const { return onnx_.has_value(); }           ///< whether it is a graph
  /// In the order of the file; for ONNX in the order of the layers, with Lockstep's names and
  /// shapes.
  std::span<const StoredTensor> tensors() const { return tensors_; }
  /// The layer of a tensor in tensors(); only for ONNX.
  const std::string& layer(std::size_t tensor) const { return weights_[tensor].layer; }
  /// Reads a tensor of tensors() as float32. Throws Error (checkpoint).
  void read_widened(const StoredTensor& tensor, std::span<float> into) const;

 private:
  std::filesystem::path path_;
  std::vector<checkpoint::SafetensorsFile> safetensors_;
  std::optional<onnx::ImportedNetwork> onnx_;
  std::vector<NamedWeight> weights_;  // views of `onnx_`
  std::vector<StoredTensor> tensors_;
};

}  // namespace lockstep::inline v0::train
