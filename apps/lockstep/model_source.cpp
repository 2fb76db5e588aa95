#include "apps/lockstep/model_source.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "apps/lockstep/torchscript.h"
#include "lockstep/base/error.h"
#include "lockstep/base/json/json.h"
#include "lockstep/base/json/json_member.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/checkpoint/files.h"
#include "lockstep/job/agreement.h"
#include "lockstep/model/network/network_json.h"
#include "lockstep/onnx/import.h"
#include "lockstep/train/fit/fit_state.h"

namespace lockstep::inline v0::apps {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string read_description(const fs::path& file) {
  try {
    return checkpoint::read_small_file(file);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, "model",
                "expected the name of a network or a JSON file that can be read",
                fmt::format("{}: {}", file.string(), error.message().actual));
  }
}

/// The description of the network in an ONNX file.
std::string describe_onnx(const fs::path& file, const std::vector<zoo::DataInput>& inputs,
                          bool reset_head) {
  onnx::ImportOptions options;
  for (const zoo::DataInput& one : inputs) options.inputs.push_back(one.input);
  const model::Network network = onnx::import_file(file, std::move(options)).network;
  auto description = model::network_to_json(network);
  if (!description)
    throw Error(ErrorCategory::input, "model", "expected a network of ONNX that can be described",
                file.string());
  json& layers = (*description)["layers"];
  for (std::size_t i = network.nodes().size(); reset_head && i-- > 0;) {
    if (network.nodes()[i].parameters.empty()) continue;
    if (layers[i]["type"] == "dense") layers[i]["units"] = "classes";
    break;
  }
  return dump_json(*description);
}

/// The newest complete checkpoint in `directory`; empty if there is none.
fs::path find_newest(const fs::path& directory) {
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(directory))
    if (info.complete()) return info.path;
  return {};
}

/// The checkpoint `name`, or the newest complete checkpoint in the directory `name`; DIR:best is
/// the best one.
fs::path find_checkpoint(const fs::path& name) {
  fs::path path = checkpoint::resolve_best(name);
  // An unreadable path is reported below, when it is read.
  std::error_code unreadable;
  if (fs::exists(path / checkpoint::kManifestName, unreadable)) return path;
  if (fs::path newest = find_newest(path); !newest.empty()) return newest;
  throw Error(ErrorCategory::checkpoint, path.string(),
              "expected a directory with a complete checkpoint",
              fs::exists(path, unreadable) ? "there is none in it"
              : unreadable                 ? unreadable.message()
                                           : "it does not exist");
}

std::string read_state(const fs::path& checkpoint) {
  return checkpoint::read_small_file(checkpoint / checkpoint::kStateFile);
}

/// xxh3-64.
std::uint64_t hash_of(const std::string& content) {
  checkpoint::Hasher hasher;
  hasher.add(content);
  return hasher.value();
}

model::Loss read_loss(const json& object) {
  model::Loss loss = model::parse_loss(json_member<std::string>(object, "loss"));
  for (const auto& [name, value] : model::loss_parameters(loss))
    *value = json_member<float>(object, std::string(name).c_str());
  return loss;
}

/// All losses, with named outputs; empty if there is only one, on the first output and target.
/// Throws std::invalid_argument.
std::vector<strategy::OutputLoss> read_losses(const json& stored) {
  std::vector<strategy::OutputLoss> losses;
  if (!stored.contains(train::kOutputLossesKey)) return losses;
  for (const json& one : json_member<json::array_t>(stored, train::kOutputLossesKey))
    losses.push_back({.output = json_member<std::string>(one, "output"),
                      .target = json_member<std::string>(one, "target"),
                      .loss = read_loss(one),
                      .weight = json_member<float>(one, "weight")});
  if (losses.size() == 1 && losses.front().target.empty()) losses.clear();
  return losses;
}

/// The inverse of read_losses().
json list_losses(const std::vector<strategy::OutputLoss>& losses) {
  json list = json::array();
  for (const strategy::OutputLoss& one : losses)
    train::add_loss(list.emplace_back(json{{"output", one.output},
                                           {"target", one.target.empty() ? one.output : one.target},
                                           {"weight", one.weight}}),
                    one.loss);
  return list;
}

json list_inputs(const std::vector<zoo::DataInput>& inputs) {
  json list = json::array();
  for (const auto& [input, categories] : inputs)
    list.push_back({{"name", input.name},
                    {"shape", input.shape},
                    {"type", lockstep::to_string(input.type)},
                    {"categories", categories}});
  return list;
}

/// A TorchScript file as ModelSource::to_json() stored it.
ModelSource read_script(const json& script, const std::string& where) {
  ModelSource source{.name = json_member<std::string>(script, "path"),
                     .outputs = json_member<std::int64_t>(script, "outputs"),
                     .loss = read_loss(script)};
  source.script = checkpoint::parse_hex16(json_member<std::string>(script, "xxh3"));
  if (!source.script) throw std::invalid_argument("its \"xxh3\" is not 16 hexadecimal digits");
  for (const json& input : json_member<std::vector<json>>(script, "inputs"))
    source.inputs.push_back(
        {.input = {.name = json_member<std::string>(input, "name"),
                   .shape = json_member<model::Shape>(input, "shape"),
                   .type = parse_element_type(where, json_member<std::string>(input, "type"))},
         .categories = json_member<std::int64_t>(input, "categories")});
  if (source.inputs.empty()) throw std::invalid_argument("its \"inputs\" are empty");
  source.input_shape = source.inputs.front().input.shape;
  source.losses = read_losses(script);
  return source;
}

ModelSource read_stored_network(const json& configuration, const std::string& where) {
  if (!configuration.contains(train::kNetworkKey))
    throw Error(ErrorCategory::checkpoint, where,
                "expected a checkpoint that describes its network",
                "this one does not: the network has layers of its own, or a loss, which only the "
                "program that trained it can build");
  const auto stored = json_member<json>(configuration, train::kNetworkKey);
  ModelSource source{
      .name = where,
      .description = dump_json(json(json_member<json::object_t>(stored, "description"))),
      .loss = read_loss(stored)};
  const model::Network network = model::network_from_json(source.description, where);
  source.losses = read_losses(stored);
  for (const strategy::OutputLoss& one : source.losses)
    if (std::ranges::find(network.outputs(), one.output, &model::NetworkOutput::name) ==
        network.outputs().end())
      throw std::invalid_argument(
          fmt::format("it has a loss of {}, which is no output", one.output));
  source.loss_count = stored.contains("losses") ? json_member<std::int64_t>(stored, "losses") : 1;
  source.input_shape = network.input_shape();
  source.outputs = model::row_width(source.loss, network.output_shape());
  if (!source.losses.empty()) {
    const auto first = std::ranges::find(network.outputs(), source.losses.front().output,
                                         &model::NetworkOutput::name);
    source.outputs = model::row_width(source.loss, network.shape(first->node));
  }
  return source;
}

/// "images imagenet-train, 2 maps", as the trainer stored it.
std::string preparation_text(const json& configuration) {
  const auto text = json_member<std::string>(configuration, train::kPreparationKey);
  return text.starts_with(", ") ? text.substr(2) : text;
}

}  // namespace

model::Network ModelSource::make() const {
  if (script) {
    LOCKSTEP_CHECK(code != nullptr);
    return torchscript_network(name, code, inputs);
  }
  if (description.empty())
    return inputs.empty() ? zoo::make(name, input_shape, outputs)
                          : zoo::make(name, inputs, outputs);
  return model::network_from_json(description, name, {.input = input_shape, .classes = outputs});
}

nlohmann::json ModelSource::to_json() const {
  json model = {{"name", name}, {"images", images}};
  if (reads_pixels) model["pixels"] = *reads_pixels;
  if (!input_feature.empty()) model["input_feature"] = input_feature;
  if (!stored_shape.empty()) model["stored_shape"] = stored_shape;
  if (script) {
    std::error_code unknown;  // if the working directory was removed
    json& stored = model["script"];
    stored = {{"path", fs::absolute(name, unknown).string()},
              {"xxh3", checkpoint::hex16(*script)},
              {"inputs", list_inputs(inputs)},
              {"outputs", outputs}};
    train::add_loss(stored, loss);
    if (!losses.empty()) stored[train::kOutputLossesKey] = list_losses(losses);
  }
  return model;
}

ModelSource ModelSource::of_configuration(const nlohmann::json& configuration,
                                          const std::string& where) {
  try {
    // A program that uses the library may store anything under this key.
    const json value = configuration.value(kKey, json::object());
    const json model = value.is_object() ? value : json::object();
    ModelSource source = model.contains("script") ? read_script(model.at("script"), where)
                                                  : read_stored_network(configuration, where);
    if (model.contains("images"))
      source.images = parse_images(json_member<std::string>(model, "images"));
    if (model.contains("pixels")) source.reads_pixels = json_member<bool>(model, "pixels");
    if (model.contains("input_feature"))
      source.input_feature = json_member<std::string>(model, "input_feature");
    if (model.contains("stored_shape"))
      source.stored_shape = json_member<model::Shape>(model, "stored_shape");
    if (configuration.contains(train::kImageRecipeKey))
      source.test_images =
          data::ImageRecipe::from_json(json_member<json>(configuration, train::kImageRecipeKey));
    if (configuration.value(train::kMappedKey, json()) == true)
      source.mapped = preparation_text(configuration);
    const json options = configuration.value(kOptionsKey, json());
    const auto option = [&](const char* key) {
      const json given = options.is_object() ? options.value(key, json()) : json();
      return given.is_string() ? given.get<std::string>() : "";
    };
    source.metrics = option("metrics");
    source.autoencodes = option("autoencoder") == "true";
    return source;
  } catch (const std::invalid_argument& reason) {
    throw Error(ErrorCategory::checkpoint, where, "expected the description of a model",
                reason.what());
  }
}

ModelSource choose_model(const std::string& name, const data::SampleSpec& spec,
                         const model::Loss& loss, const std::string& images, bool reset_head) {
  const bool is_script = is_torchscript(name);
  const bool is_described = name.ends_with(".json") || is_onnx(name);
  if (!is_described) data::check_fixed_sizes(spec.inputs, "model " + name);
  std::int64_t classes = spec.classes();
  // "classes" of a description may be those of any target.
  for (const data::TensorSpec& target : spec.targets)
    if (classes == 0 && is_described) classes = target.classes;
  // Two classes may be one logit.
  const std::int64_t outputs = classes == 0 ? spec.target_count()
                               : std::holds_alternative<model::BinaryCrossentropy>(loss) ? 1
                                                                                         : classes;
  ModelSource source{.name = name,
                     .description = {},
                     .input_shape = spec.shape(),
                     .outputs = outputs,
                     .loss = loss,
                     .images = images};
  for (const data::TensorSpec& input : spec.inputs)
    source.inputs.push_back(
        {.input = {.name = input.name, .shape = input.shape, .type = input.type},
         .categories = input.classes});
  if (name.ends_with(".json"))
    source.description = read_description(name);
  else if (is_onnx(name))
    source.description = describe_onnx(name, source.inputs, reset_head);
  else if (is_script)
    source.code = read_torchscript(name);
  if (source.code) source.script = hash_of(*source.code);
  return source;
}

bool is_onnx(std::string_view name) { return name.ends_with(".onnx"); }

ModelSource model_of_checkpoint(const strategy::Strategy& strategy, const fs::path& path,
                                const CodeArguments& code) {
  const std::string where = (path / checkpoint::kStateFile).string();
  const auto parse = [&](const std::string& state) {
    return ModelSource::of_configuration(
        *checkpoint::parse_training_state(state, where).configuration, where);
  };
  std::shared_ptr<const std::string> script;  // only the chief sees the checkpoint
  const auto read = [&]() -> std::string {
    if (!strategy.is_chief()) return {};
    const fs::path found = find_checkpoint(path);
    std::string state = read_state(found);
    ModelSource source = parse(state);
    if (source.script) read_code(source, found, code);
    script = source.code;
    return state;
  };
  ModelSource source = parse(checkpoint::on_every_rank(strategy.ranks(), read).front());
  if (source.script)
    checkpoint::broadcast_file(strategy.ranks(), script);
  else
    read_code(source, path, code);  // which refuses --model
  source.code = std::move(script);
  return source;
}

void read_code(ModelSource& source, const fs::path& path, const CodeArguments& code) {
  if (!source.script) {
    if (code.script.empty()) return;
    throw Error(ErrorCategory::input, "model",
                "expected --model only for a checkpoint of a TorchScript file",
                fmt::format("{} describes its network", path.string()));
  }
  const bool is_named = !code.script.empty();
  source.code =
      is_named
          ? read_torchscript(code.script)
          : std::make_shared<const std::string>(checkpoint::read_script(path, code.is_trusted));
  if (const std::uint64_t found = hash_of(*source.code); found != *source.script)
    throw Error(ErrorCategory::checkpoint, "model",
                fmt::format("expected the TorchScript file of the training, xxh3 {}",
                            checkpoint::hex16(*source.script)),
                fmt::format("got {}, xxh3 {}",
                            is_named ? code.script : (path / checkpoint::kScriptFile).string(),
                            checkpoint::hex16(found)));
}

void check_script(const strategy::Strategy& strategy, const train::CheckpointPlan& plan,
                  const ModelSource& source) {
  job::Agreement(strategy.ranks())
      .require_same("ranks", "TorchScript file",
                    source.script ? "xxh3 " + checkpoint::hex16(*source.script) : "none");
  if (!source.script || plan.directory.empty() || plan.resume == checkpoint::Resume::never) return;
  const auto read = [&]() -> std::string {
    const fs::path newest = strategy.is_chief() ? find_newest(plan.directory) : fs::path();
    return newest.empty() ? std::string() : read_state(newest);
  };
  const std::string state = checkpoint::on_every_rank(strategy.ranks(), read).front();
  if (state.empty()) return;
  const std::string where = plan.directory.string();
  const json saved = *checkpoint::parse_training_state(state, where).configuration;
  // Other networks are checked when their tensors are read.
  const json model = saved.value(ModelSource::kKey, json::object());
  if (!model.is_object() || !model.contains("script")) return;
  const ModelSource before = ModelSource::of_configuration(saved, where);
  if (before.script == source.script) return;
  throw Error(ErrorCategory::checkpoint, where,
              fmt::format("expected the TorchScript file of its checkpoints, xxh3 {}",
                          checkpoint::hex16(*before.script)),
              fmt::format("got {}, xxh3 {}: train it in another --checkpoint-dir, with --init-from "
                          "{} to begin with its weights",
                          source.name, checkpoint::hex16(*source.script), where));
}

}  // namespace lockstep::inline v0::apps
