#include "lockstep/strategy/pretrained.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/strategy/replica/local_replicas.h"

namespace lockstep::strategy {
namespace {

using nlohmann::json;

constexpr const char* kWhere = "init-from";
constexpr std::string_view kCounter = ".num_batches_tracked";
constexpr std::array<std::string_view, 3> kTypes{"F32", "BF16", "F16"};

enum class Names { own, torch };

/// A tensor to load from the file.
struct Wanted {
  std::string name;  ///< name in the file
  /// Shape in the file: [O, C, H, W] if `channels` is set, else that of the network.
  model::Shape shape;
  std::int64_t channels = 0;
  std::string layer;
  std::span<float> into;
};

/// PyTorch's name of a layer's parameter.
std::string_view torch_name(std::string_view name) {
  using Spelling = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Spelling, 5> kSpellings{{{"kernel", "weight"},
                                                {"gamma", "weight"},
                                                {"beta", "bias"},
                                                {"moving_mean", "running_mean"},
                                                {"moving_variance", "running_var"}}};
  const auto* const found = std::ranges::find(kSpellings, name, &Spelling::first);
  return found == kSpellings.end() ? name : found->second;
}

Wanted wanted_of(const std::string& layer, const model::ParameterInfo& entry, Names names,
                 std::span<float> flat) {
  Wanted wanted{.name = entry.name,
                .shape = entry.shape,
                .layer = layer,
                .into = model::ParameterTable::slice(flat, entry)};
  if (names == Names::own) return wanted;
  const std::string last = entry.name.substr(layer.size() + 1);
  wanted.name = fmt::format("{}.{}", layer, torch_name(last));
  if (entry.shape.size() == 4 && last == "kernel") {
    wanted.channels = entry.shape[3];
    wanted.shape = {entry.shape[0], entry.shape[3], entry.shape[1], entry.shape[2]};
  }
  return wanted;
}

/// In the order of the layers.
std::vector<Wanted> all_wanted(const model::Network& network, Names names,
                               std::span<float> parameters, std::span<float> buffers) {
  std::vector<Wanted> all;
  for (const model::Node& node : network.nodes()) {
    for (const std::size_t i : node.parameters)
      all.push_back(wanted_of(node.name, network.parameters().entries()[i], names, parameters));
    for (const std::size_t i : node.buffers)
      all.push_back(wanted_of(node.name, network.buffers().entries()[i], names, buffers));
  }
  return all;
}

/// The last layer with parameters.
std::string head_of(const model::Network& network) {
  std::string head;
  for (const model::Node& node : network.nodes())
    if (!node.parameters.empty()) head = node.name;
  return head;
}

/// The file itself, or that of the newest undamaged checkpoint; an unhealthy one only if there is
/// no other.
std::filesystem::path weights_file(const std::filesystem::path& path, Logger& log) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  std::vector<checkpoint::CheckpointInfo> checkpoints = checkpoint::list_checkpoints(path);
  std::stable_partition(checkpoints.begin(), checkpoints.end(),
                        std::mem_fn(&checkpoint::CheckpointInfo::healthy));
  if (checkpoints.empty())
    throw Error(ErrorCategory::checkpoint, kWhere,
                "expected a safetensors file, a checkpoint, or a directory of them",
                fmt::format("got {}, which has none", path.string()));
  std::string damage;
  for (const checkpoint::CheckpointInfo& info : checkpoints) {
    try {
      checkpoint::check_contents(info.path, checkpoint::read_manifest(info.path));
      if (!damage.empty()) log.warn("skipped a checkpoint: {}", damage);
      return info.path / checkpoint::kModelFile;
    } catch (const Error& error) {
      if (damage.empty()) damage = error.what();
    }
  }
  throw Error(ErrorCategory::checkpoint, kWhere, "expected an undamaged checkpoint",
              fmt::format("{} damaged, the newest: {}", checkpoints.size(), damage));
}

/// PyTorch flattens images channels first, so the values after a flatten layer are in a different
/// order.
void check_order_of_values(const model::Network& network, const std::filesystem::path& file) {
  for (const model::Node& node : network.nodes()) {
    if (node.layer->kind() != "flatten") continue;
    const model::Shape& image = network.shape(node.inputs.front());
    if (image.size() != 3 || image[0] * image[1] == 1 || image[2] == 1) continue;
    throw Error(ErrorCategory::checkpoint, kWhere,
                fmt::format("expected a network without flattened images for {}, which has "
                            "PyTorch's names and order of values",
                            file.string()),
                fmt::format("got {}, whose {} flattens {}", network.name(), node.name,
                            model::to_string(image)));
  }
}

/// The differences between the file and the weights of the network.
class Differences {
 public:
  Differences(const checkpoint::SafetensorsFile& file, const std::vector<Wanted>& wanted,
              const std::string& kept_head) {
    for (const Wanted& tensor : wanted)
      if (tensor.layer != kept_head) compare(tensor, file.find(tensor.name));
    for (const checkpoint::SafetensorsFile::Entry& entry : file.tensors()) {
      const bool of_kept_head = !kept_head.empty() && (entry.name.starts_with(kept_head + ".") ||
                                                       entry.name.starts_with(kept_head + "/"));
      if (of_kept_head || entry.name.ends_with(kCounter)) continue;
      if (std::ranges::find(wanted, entry.name, &Wanted::name) == wanted.end())
        texts_.push_back(
            fmt::format("unexpected {} {}", entry.name, model::to_string(entry.shape)));
    }
  }

  const std::vector<std::string>& texts() const { return texts_; }
  bool concern(const std::string& layer) const {
    return std::ranges::find(layers_, layer) != layers_.end();
  }

 private:
  void compare(const Wanted& wanted, const checkpoint::SafetensorsFile::Entry* stored) {
    const std::string shape = model::to_string(wanted.shape);
    if (stored == nullptr)
      note(wanted, fmt::format("no {} {}", wanted.name, shape));
    else if (stored->shape != wanted.shape)
      note(wanted,
           fmt::format("{} {} instead of {}", wanted.name, model::to_string(stored->shape), shape));
    else if (std::ranges::find(kTypes, stored->type) == kTypes.end())
      note(wanted, fmt::format("{} of {} instead of {}", wanted.name, stored->type,
                               fmt::join(kTypes, ", ")));
  }
  void note(const Wanted& wanted, std::string text) {
    layers_.push_back(wanted.layer);
    texts_.push_back(std::move(text));
  }

  std::vector<std::string> texts_;
  std::vector<std::string> layers_;
};

/// [O, C, H, W] to [O, H, W, C].
void to_channels_last(std::span<const float> from, std::int64_t outputs, std::int64_t channels,
                      std::span<float> to) {
  const auto c = static_cast<std::size_t>(channels);
  const std::size_t positions = to.size() / static_cast<std::size_t>(outputs) / c;
  for (std::size_t output = 0; output < to.size() / (positions * c); ++output)
    for (std::size_t position = 0; position < positions; ++position)
      for (std::size_t channel = 0; channel < c; ++channel)
        to[(output * positions + position) * c + channel] =
            from[(output * c + channel) * positions + position];
}

void read(const checkpoint::SafetensorsFile& file, const Wanted& wanted) {
  const checkpoint::SafetensorsFile::Entry& stored = *file.find(wanted.name);
  if (wanted.channels == 0) return file.read_widened(stored, wanted.into);
  std::vector<float> channels_first(wanted.into.size());
  file.read_widened(stored, channels_first);
  to_channels_last(channels_first, wanted.shape.front(), wanted.channels, wanted.into);
}

}  // namespace

PretrainedWeights read_pretrained(const Pretrained& from, const model::Network& network,
                                  const checkpoint::ReplicaArrays& arrays, Logger& log) {
  const checkpoint::SafetensorsFile file(weights_file(from.path, log));
  const bool own = std::ranges::any_of(
      file.tensors(), [](const auto& entry) { return entry.name.find('/') != std::string::npos; });
  const Names names = own ? Names::own : Names::torch;
  if (names == Names::torch) check_order_of_values(network, file.path());

  // Read into separate memory first; the arrays change only when everything was read.
  std::vector<float> parameters(arrays.parameters.begin(), arrays.parameters.end());
  std::vector<float> buffers(arrays.buffers.begin(), arrays.buffers.end());
  const std::vector<Wanted> wanted = all_wanted(network, names, parameters, buffers);
  const std::string head = head_of(network);
  const std::string kept_head = from.reset_head ? head : "";

  const Differences differences(file, wanted, kept_head);
  if (!differences.texts().empty())
    throw Error(ErrorCategory::checkpoint, kWhere,
                fmt::format("expected the weights of {} in {}, with {} names", network.name(),
                            file.path().string(), own ? "Lockstep's" : "PyTorch's"),
                fmt::format("got {}{}", fmt::join(differences.texts(), ", "),
                            from.reset_head || !differences.concern(head)
                                ? ""
                                : fmt::format("; --reset-head does not load {}", head)));
  for (const Wanted& tensor : wanted)
    if (tensor.layer != kept_head) read(file, tensor);
  std::ranges::copy(parameters, arrays.parameters.begin());
  std::ranges::copy(buffers, arrays.buffers.begin());
  return {file.path(), kept_head};
}

PretrainedWeights initialize_from(LocalReplicas& replicas, const Pretrained& from) {
  const Strategy& strategy = replicas.strategy();
  const checkpoint::ReplicaArrays arrays = replicas.arrays(false);
  const auto on_chief = [&]() -> std::string {
    if (!strategy.is_chief()) return {};
    const PretrainedWeights weights =
        read_pretrained(from, replicas.network(), arrays, *strategy.session().logger());
    return dump_json(
        json{{"file", encode_bytes(weights.file.native())}, {"kept_head", weights.kept_head}});
  };
  const json told = parse_json(checkpoint::on_every_rank(strategy.ranks(), on_chief).front(),
                               ErrorCategory::communication, kWhere);
  strategy.ranks().broadcast(std::as_writable_bytes(arrays.parameters), 0);
  strategy.ranks().broadcast(std::as_writable_bytes(arrays.buffers), 0);
  replicas.spread();
  return {decode_bytes(told["file"].get<std::string>()), told["kept_head"].get<std::string>()};
}

}  // namespace lockstep::strategy
