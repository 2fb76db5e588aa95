#include "lockstep/train/options/weights_file.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/safetensors_index.h"

namespace lockstep::inline v0::train {
namespace {

constexpr const char* kInitFrom = "init-from";

/// Whether an LSTM or a simple RNN of the network has a second bias. If not, two biases of an ONNX
/// graph are added.
bool has_two_biases(const model::Network& network) {
  return std::ranges::any_of(network.nodes(), [&](const model::Node& node) {
    return node.layer->kind() != "gru" &&
           network.parameters().find(node.name + "/recurrent_bias") != nullptr;
  });
}

/// Describes the contents of a directory without checkpoints.
std::string contents_of(const std::filesystem::path& directory) {
  std::vector<std::string> files;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator entry(directory, unreadable), end;
       !unreadable && entry != end; entry.increment(unreadable))
    if (entry->path().extension() == ".safetensors") files.push_back(entry->path().string());
  std::ranges::sort(files);
  if (files.empty()) return "which has none";
  if (files.size() == 1) return "which has none: name the file, " + files.front();
  return fmt::format("which has none, but {} safetensors files: name one of them, such as {}",
                     files.size(), files.front());
}

/// The weights in a folder of a model hub; empty if there are none.
std::filesystem::path weights_of_folder(const std::filesystem::path& folder, Logger& log) {
  for (const std::string& name :
       {std::string(checkpoint::kModelFile), std::string("model") + checkpoint::kIndexEnding}) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(folder / name, ignored)) continue;
    log.info(fmt::format("{} has no checkpoints; its {} is read", folder.string(), name));
    return folder / name;
  }
  return {};
}

}  // namespace

std::filesystem::path find_weights(const std::filesystem::path& source, Logger& log) {
  const std::filesystem::path path = checkpoint::resolve_best(source);
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  std::vector<checkpoint::CheckpointInfo> checkpoints = checkpoint::list_checkpoints(path);
  std::stable_partition(checkpoints.begin(), checkpoints.end(),
                        std::mem_fn(&checkpoint::CheckpointInfo::healthy));
  if (checkpoints.empty()) {
    if (auto found = weights_of_folder(path, log); !found.empty()) return found;
    throw Error(ErrorCategory::checkpoint, kInitFrom,
                "expected a safetensors file, a checkpoint, a directory of checkpoints, or a "
                "folder with model.safetensors or its index",
                fmt::format("got {}, {}", path.string(), contents_of(path)));
  }
  std::string damage;
  for (const checkpoint::CheckpointInfo& info : checkpoints) {
    try {
      checkpoint::check_contents(info.path, checkpoint::read_manifest(info.path));
      if (!damage.empty()) log.warn(fmt::format("skipped a checkpoint: {}", damage));
      if (const std::string best = checkpoint::describe_best(path, info.path); !best.empty())
        log.info(best);
      return info.path / checkpoint::kModelFile;
    } catch (const Error& error) {
      if (damage.empty()) damage = error.what();
    }
  }
  throw Error(ErrorCategory::checkpoint, kInitFrom, "expected an undamaged checkpoint",
              fmt::format("{} damaged, the newest: {}", checkpoints.size(), damage));
}

WeightsFile::WeightsFile(const std::filesystem::path& path, const model::Network& network)
    : path_(path) {
  if (path.extension() != ".onnx") {
    if (path.string().ends_with(checkpoint::kIndexEnding))
      safetensors_ = checkpoint::open_shards(path);
    else
      safetensors_.emplace_back(path);
    for (const checkpoint::SafetensorsFile& file : safetensors_)
      for (const checkpoint::SafetensorsFile::Entry& entry : file.tensors())
        tensors_.push_back({entry, &file});
    return;
  }
  onnx_ = onnx::import_file(path, {.keeps_two_biases = has_two_biases(network),
                                   .inputs = {network.inputs().begin(), network.inputs().end()}});
  weights_ = own_weights(onnx_->network, onnx_->parameters, onnx_->buffers);
  for (std::size_t i = 0; i < weights_.size(); ++i)
    tensors_.push_back({{.name = weights_[i].name,
                         .type = "F32",
                         .shape = weights_[i].shape,
                         .offset = i,
                         .bytes = weights_[i].values.size_bytes()}});
}

void WeightsFile::read_widened(const StoredTensor& tensor, std::span<float> into) const {
  if (tensor.file != nullptr) return tensor.file->read_widened(tensor, into);
  std::ranges::copy(weights_[tensor.offset].values, into.begin());
}

}  // namespace lockstep::inline v0::train
