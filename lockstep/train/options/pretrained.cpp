#include "lockstep/train/options/pretrained.h"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/strategy/replica/local_replicas.h"
#include "lockstep/train/input/target_scale.h"
#include "lockstep/train/options/weight_names.h"
#include "lockstep/train/options/weights_file.h"

namespace lockstep::inline v0::train {
namespace {

using nlohmann::json;

constexpr const char* kWhere = "init-from";
/// Buffers of PyTorch that are not weights: a counter, position numbers, and the masks of causal
/// attention.
constexpr std::array<std::string_view, 4> kNoWeights{".num_batches_tracked", ".position_ids",
                                                     ".attn.bias", ".attn.masked_bias"};
/// Layers whose kernels are [inputs, outputs] in Hugging Face's GPT-2, unlike those of
/// torch.nn.Linear.
constexpr std::array<std::string_view, 3> kConv1D{".attn.c_attn", ".c_proj", ".mlp.c_fc"};
/// Layers with a row per text position, and BERT's layer of token types, of which row 0 is read.
constexpr std::string_view kTokenTypes = "embeddings.token_type_embeddings";
constexpr std::array<std::string_view, 3> kRowsOfPositions{"wpe", "embeddings.position_embeddings",
                                                           kTokenTypes};
constexpr std::array<std::string_view, 4> kTypes{"F32", "BF16", "F16", "F64"};
/// Prefixes that torch.nn.parallel.DistributedDataParallel and torch.compile add to every name.
constexpr std::array<std::string_view, 2> kWrappers{"module.", "_orig_mod."};

/// Returns the prefix that wrappers of the PyTorch model added to all tensor names in the file. A
/// layer of `network` may have such a name, too.
std::string wrapper_prefix(const WeightsFile& file, const model::Network& network) {
  std::string prefix;
  const auto all_continue = [&](std::string_view wrapper) {
    const auto continues = [&](const auto& entry) {
      return std::string_view(entry.name).substr(prefix.size()).starts_with(wrapper);
    };
    return !file.tensors().empty() && std::ranges::all_of(file.tensors(), continues) &&
           std::ranges::none_of(network.nodes(), [&](const model::Node& node) {
             return node.name.starts_with(wrapper);
           });
  };
  for (auto wrapper = kWrappers.begin(); wrapper != kWrappers.end();) {
    wrapper = std::ranges::find_if(kWrappers, all_continue);
    if (wrapper != kWrappers.end()) prefix += *wrapper;
  }
  return prefix;
}

/// The last layer with parameters.
std::string head_of(const model::Network& network) {
  std::string head;
  for (const model::Node& node : network.nodes())
    if (!node.parameters.empty()) head = node.name;
  return head;
}

/// The tensors of the file by their names in the network.
using StoredTensors = std::map<std::string, const StoredTensor*, std::less<>>;

/// Returns the name in the network of the tensor `name` of the file; nullopt if the rule does not
/// match.
std::optional<std::string> renamed(const NameMap& rule, std::string_view name) {
  const std::size_t star = rule.from.find('*');
  if (star == std::string::npos) return name == rule.from ? std::optional(rule.to) : std::nullopt;
  const std::string_view before = std::string_view(rule.from).substr(0, star);
  const std::string_view after = std::string_view(rule.from).substr(star + 1);
  if (name.size() < before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return std::nullopt;
  name = name.substr(before.size(), name.size() - before.size() - after.size());
  std::string to = rule.to;
  return to.replace(to.find('*'), 1, name);
}

/// Removes `prefix`, which all names have, and applies the first rule that matches.
StoredTensors stored_tensors(const WeightsFile& file, const std::string& prefix,
                             const std::vector<NameMap>& rules) {
  StoredTensors tensors;
  std::vector<bool> used(rules.size());
  for (const StoredTensor& entry : file.tensors()) {
    std::string name = entry.name.substr(prefix.size());
    for (std::size_t i = 0; i < rules.size(); ++i) {
      auto other = renamed(rules[i], name);
      if (!other) continue;
      name = std::move(*other);
      used[i] = true;
      break;
    }
    const auto [found, is_new] = tensors.emplace(name, &entry);
    if (!is_new)
      throw Error(ErrorCategory::checkpoint, kWhere,
                  fmt::format("expected one tensor of {} for each name", file.path().string()),
                  fmt::format("got {} and {} for {}", found->second->name, entry.name, name));
  }
  const auto unused = std::ranges::find(used, false);
  if (unused != used.end())
    throw Error(ErrorCategory::checkpoint, kWhere,
                fmt::format("expected tensors named {} in {}, as the map of names says",
                            rules[unused - used.begin()].from, file.path().string()),
                "there are none");
  return tensors;
}

model::Shape shape_of(const NamedWeight& weight, const StoredTensors& stored) {
  const auto found = stored.find(weight.name);
  return found == stored.end() ? model::Shape() : found->second->shape;
}

/// Adapts the expected number of position rows to the file, if it has all rows that the network
/// reads: a model of longer texts has more, and an ONNX graph may have only the rows that it reads.
void read_first_rows(std::vector<NamedWeight>& wanted, const StoredTensors& stored,
                     const model::Network& network, const WeightsFile& file, Logger& log) {
  for (NamedWeight& weight : wanted) {
    if (std::ranges::find(kRowsOfPositions, weight.layer) == kRowsOfPositions.end()) continue;
    const auto node = std::ranges::find(network.nodes(), weight.layer, &model::Node::name);
    const bool are_types = weight.layer == kTokenTypes;
    const std::int64_t read = are_types ? 1 : node->output_shape.front();
    const model::Shape shape = shape_of(weight, stored);
    if (shape.size() != 2 || weight.shape.size() != 2 || shape[1] != weight.shape[1] ||
        shape[0] == weight.shape[0] ||
        shape[0] < (file.is_onnx() || are_types ? read : weight.shape[0]))
      continue;
    log.info(fmt::format("of the {} rows of {} in {}, the first {} are read", shape[0], weight.name,
                         file.path().string(), std::min(shape[0], weight.shape[0])));
    const std::int64_t rows = std::min(shape[0], weight.shape[0]);
    weight.values = weight.values.first(static_cast<std::size_t>(rows * shape[1]));
    weight.shape = shape;
  }
}

/// Expects matrices [inputs, outputs] if the file is Hugging Face's GPT-2. Only kernels that are
/// not square show the layout.
void adapt_to_gpt2(std::vector<NamedWeight>& wanted, const StoredTensors& stored,
                   const std::string& file, Logger& log) {
  const auto is_kernel_of = [](const NamedWeight& weight, std::string_view layer) {
    return weight.shape.size() == 2 && weight.layer.ends_with(layer);
  };
  const auto is_transposed = [&](const NamedWeight& weight) {
    return is_kernel_of(weight, kConv1D.front()) &&
           shape_of(weight, stored) == model::Shape{weight.shape[1], weight.shape[0]};
  };
  if (std::ranges::none_of(wanted, is_transposed)) return;
  for (NamedWeight& weight : wanted)
    if (std::ranges::any_of(kConv1D,
                            [&](std::string_view layer) { return is_kernel_of(weight, layer); })) {
      weight.transposed = true;
      std::swap(weight.shape[0], weight.shape[1]);
    }
  log.info(
      fmt::format("{} is read as a GPT-2 of Hugging Face: with kernels [inputs, outputs]", file));
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

/// Returns the tensors of an ONNX file by the names of `wanted`, if both have the same kinds and
/// shapes in the same order; the layer names of another program differ. The last layers may differ
/// if the network keeps its head, `uninitialized_head`. nullopt if they differ.
std::optional<StoredTensors> paired_by_order(const WeightsFile& file,
                                             const std::vector<NamedWeight>& wanted,
                                             const std::string& uninitialized_head) {
  std::vector<const StoredTensor*> stored;
  for (std::size_t i = 0; i < file.tensors().size(); ++i)
    if (uninitialized_head.empty() || file.layer(i) != file.layer(file.tensors().size() - 1))
      stored.push_back(&file.tensors()[i]);
  StoredTensors tensors;
  std::size_t next = 0;
  for (const NamedWeight& one : wanted) {
    if (one.layer == uninitialized_head) continue;
    if (next == stored.size() || stored[next]->shape != one.shape ||
        last_part(stored[next]->name) != last_part(one.name))
      return std::nullopt;
    tensors.emplace(one.name, stored[next++]);
  }
  return next == stored.size() ? std::optional(std::move(tensors)) : std::nullopt;
}

/// Formats the first of `texts`, and the number of the others.
std::string first_of(const std::vector<std::string>& texts) {
  const std::size_t shown = std::min<std::size_t>(texts.size(), 10);
  return fmt::format(
      "{}{}", fmt::join(texts.begin(), texts.begin() + std::ptrdiff_t(shown), ", "),
      shown == texts.size() ? "" : fmt::format(", and {} more", texts.size() - shown));
}

bool is_of_layer(std::string_view tensor, std::string_view layer) {
  return !layer.empty() && tensor.starts_with(layer) && tensor.size() > layer.size() &&
         (tensor[layer.size()] == '.' || tensor[layer.size()] == '/');
}

/// Compares the tensors of the file with the weights of the network.
class Comparison {
 public:
  struct Pair {
    const NamedWeight* wanted;
    const StoredTensor* stored;
  };

  Comparison(const StoredTensors& stored, const std::vector<NamedWeight>& wanted,
             const std::string& head, const std::string& uninitialized_head) {
    for (const NamedWeight& tensor : wanted) {
      const auto found = stored.find(tensor.name);
      if (tensor.layer != uninitialized_head)
        compare(tensor, found == stored.end() ? nullptr : found->second, head);
    }
    for (const auto& [name, entry] : stored) {
      const bool is_no_weight = std::ranges::any_of(
          kNoWeights,
          [&tensor = name](std::string_view ending) { return tensor.ends_with(ending); });
      if (is_of_layer(name, uninitialized_head) || is_no_weight ||
          std::ranges::find(wanted, name, &NamedWeight::name) != wanted.end())
        continue;
      unused_.push_back(fmt::format("{} {}", entry->name, model::to_string(entry->shape)));
      loses_weights_ = loses_weights_ || !is_of_layer(name, head);
    }
  }

  const std::vector<Pair>& loaded() const { return loaded_; }
  /// Whether the network lacks weights of the file outside the layer `head`. Then it is unlikely to
  /// compute the same function.
  bool loses_weights() const { return loses_weights_; }
  bool fits() const { return missing_.empty() && unused_.empty() && different_.empty(); }
  /// Formats the first differences, and the number of the others.
  std::string differences() const {
    std::vector<std::string> texts = different_;
    for (const std::string& text : missing_) texts.push_back("no " + text);
    for (const std::string& text : unused_) texts.push_back("unexpected " + text);
    return first_of(texts);
  }
  /// Returns a line per kind: the number of tensors, and the first ones.
  std::vector<std::string> table() const {
    std::vector<std::string> names;
    for (const Pair& pair : loaded_) names.push_back(pair.wanted->name);
    const std::pair<const char*, const std::vector<std::string>*> kinds[] = {
        {"loaded", &names},
        {"missing in the file", &missing_},
        {"unused in the file", &unused_},
        {"of another shape or type", &different_}};
    std::vector<std::string> lines;
    for (const auto& [kind, texts] : kinds)
      lines.push_back(fmt::format("{:<24} {:>5}{}{}", kind, texts->size(),
                                  texts->empty() ? "" : "  ", first_of(*texts)));
    return lines;
  }
  bool concerns(const std::string& layer) const {
    return std::ranges::find(layers_, layer) != layers_.end();
  }

 private:
  void compare(const NamedWeight& wanted, const StoredTensor* stored, const std::string& head) {
    const std::string shape = model::to_string(wanted.shape);
    if (stored != nullptr && stored->shape == wanted.shape &&
        std::ranges::find(kTypes, stored->type) != kTypes.end()) {
      loaded_.push_back({&wanted, stored});
      return;
    }
    layers_.push_back(wanted.layer);
    loses_weights_ = loses_weights_ || (stored != nullptr && wanted.layer != head);
    if (stored == nullptr)
      missing_.push_back(fmt::format("{} {}", wanted.name, shape));
    else if (stored->shape != wanted.shape)
      different_.push_back(
          fmt::format("{} {} instead of {}", wanted.name, model::to_string(stored->shape), shape));
    else
      different_.push_back(fmt::format("{} of {} instead of {}", wanted.name, stored->type,
                                       fmt::join(kTypes, ", ")));
  }

  std::vector<Pair> loaded_;
  std::vector<std::string> missing_;
  std::vector<std::string> unused_;
  std::vector<std::string> different_;  // in shape or type
  std::vector<std::string> layers_;     // layers with missing or different weights
  bool loses_weights_ = false;
};

void read(const WeightsFile& file, const StoredTensor& stored, const NamedWeight& wanted) {
  std::vector<float> values(static_cast<std::size_t>(model::element_count(stored.shape)));
  file.read_widened(stored, values);
  wanted.set(values);
  if (!std::ranges::all_of(wanted.values, [](float value) { return std::isfinite(value); }))
    throw Error(ErrorCategory::checkpoint, kWhere,
                fmt::format("expected finite weights in {}", file.path().string()),
                fmt::format("got NaN or infinity in {}", wanted.name));
}

/// Throws Error (input) if the layers of a checkpoint's network compute standardized targets and
/// those of this one do not, or the reverse.
void check_target_scale(const std::filesystem::path& file, const model::Network& network) {
  const std::filesystem::path state = file.parent_path() / checkpoint::kStateFile;
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(state, unknown)) return;
  const checkpoint::TrainingState saved =
      checkpoint::parse_training_state(checkpoint::read_small_file(state), state.string());
  const bool was_scaled = !stored_scale(*saved.configuration).is_null();
  if (was_scaled == has_scaled_targets(network)) return;
  throw Error(ErrorCategory::input, kWhere,
              was_scaled ? "expected --scale-targets, as in the training of these weights"
                         : "expected --no-scale-targets, as in the training of these weights",
              fmt::format("got {}", file.parent_path().string()));
}

}  // namespace

void NameMap::check() const {
  const auto stars = std::ranges::count(from, '*');
  if (from.empty() || to.empty() || stars > 1 || stars != std::ranges::count(to, '*'))
    throw Error(ErrorCategory::input, kWhere,
                "expected a map of names OLD=NEW, with one * in both or in none",
                fmt::format("got \"{}={}\"", from, to));
}

NameMap NameMap::parse(std::string_view text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  NameMap rule{std::string(text.substr(0, equals)),
               std::string(text.substr(std::min(equals + 1, text.size())))};
  rule.check();
  return rule;
}

PretrainedWeights read_pretrained(const Pretrained& from, const model::Network& network,
                                  const checkpoint::ReplicaArrays& arrays, Logger& log) {
  for (const NameMap& rule : from.map) rule.check();
  const WeightsFile file(find_weights(from.path, log), network);
  if (!from.reset_head) check_target_scale(file.path(), network);
  const bool own = file.is_onnx() || std::ranges::any_of(file.tensors(), [](const auto& entry) {
                     return entry.name.find('/') != std::string::npos;
                   });
  // Read into separate memory first; the arrays change only when everything was read.
  std::vector<float> parameters(arrays.parameters.begin(), arrays.parameters.end());
  std::vector<float> buffers(arrays.buffers.begin(), arrays.buffers.end());
  const std::string prefix = own ? "" : wrapper_prefix(file, network);
  if (!prefix.empty())
    log.info(fmt::format("the names in {} are read without \"{}\"", file.path().string(), prefix));
  std::vector<NamedWeight> wanted =
      own ? own_weights(network, parameters, buffers)
          : torch_weights(network, parameters, buffers, kWhere, file.path().string());
  const std::string head = head_of(network);
  const std::string uninitialized_head = from.reset_head ? head : "";
  StoredTensors stored = stored_tensors(file, prefix, from.map);
  if (!own) adapt_to_gpt2(wanted, stored, file.path().string(), log);
  read_first_rows(wanted, stored, network, file, log);
  if (file.is_onnx() && from.map.empty() &&
      !Comparison(stored, wanted, head, uninitialized_head).fits())
    if (auto paired = paired_by_order(file, wanted, uninitialized_head)) {
      log.warn(fmt::format(
          "the weights of {} are read by their order and shapes, as names differ; if layers of one "
          "shape are in another order there, rename them (--map)",
          file.path().string()));
      stored = std::move(*paired);
    }

  const Comparison comparison(stored, wanted, head, uninitialized_head);
  const std::size_t fitting = comparison.loaded().size();
  if (!comparison.fits() && (fitting == 0 || !from.partial)) {
    std::string advice;
    if (!from.reset_head && comparison.concerns(head))
      advice = fmt::format("; --reset-head does not load {}", head);
    if (fitting > 0 && comparison.loses_weights())
      advice +=
          "; if only a part of the file is wanted, --partial loads what fits, and the network does "
          "not compute what that of the file computes";
    else if (fitting > 0)
      advice += fmt::format("; --partial loads the {} that fit",
                            counted(std::int64_t(fitting), "tensor"));
    throw Error(ErrorCategory::checkpoint, kWhere,
                fmt::format("expected the weights of {} in {}, with {}", network.name(),
                            file.path().string(),
                            file.is_onnx() ? "the same names, or the same order and shapes"
                            : own          ? "Lockstep's names"
                                           : "PyTorch's names"),
                fmt::format("got {}{}", comparison.differences(), advice));
  }
  if (comparison.loses_weights())
    log.warn(fmt::format(
        "{} has weights that the network has no place for: unless they are another head, it does "
        "not compute what the network of the file computes",
        file.path().string()));
  for (const auto& [tensor, entry] : comparison.loaded()) read(file, *entry, *tensor);
  std::ranges::copy(parameters, arrays.parameters.begin());
  std::ranges::copy(buffers, arrays.buffers.begin());
  PretrainedWeights weights{.file = file.path(), .uninitialized_head = uninitialized_head};
  if (from.partial) weights.table = comparison.table();
  return weights;
}

PretrainedWeights initialize_from(strategy::LocalReplicas& replicas, const Pretrained& from) {
  const strategy::Strategy& strategy = replicas.strategy();
  const checkpoint::ReplicaArrays arrays = replicas.arrays(false);
  const auto on_chief = [&]() -> std::string {
    if (!strategy.is_chief()) return {};
    const PretrainedWeights weights =
        read_pretrained(from, replicas.network(), arrays, *strategy.session().logger());
    for (const std::string& line : weights.table) strategy.session().logger()->info(line);
    return dump_json(json{{"file", encode_bytes(weights.file.native())},
                          {"uninitialized_head", weights.uninitialized_head},
                          {"table", encode_strings(weights.table)}});
  };
  const json message = parse_json(checkpoint::on_every_rank(strategy.ranks(), on_chief).front(),
                                  ErrorCategory::communication, kWhere);
  strategy.ranks().broadcast(std::as_writable_bytes(arrays.parameters), 0);
  strategy.ranks().broadcast(std::as_writable_bytes(arrays.buffers), 0);
  replicas.broadcast_parameters();
  return {.file = decode_bytes(message["file"].get<std::string>()),
          .uninitialized_head = message["uninitialized_head"].get<std::string>(),
          .table = decode_strings(message["table"]).get<std::vector<std::string>>()};
}

}  // namespace lockstep::inline v0::train
