#include "apps/lockstep/model_source.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/json_member.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/model/network_json.h"
#include "lockstep/strategy/fit/fit_state.h"

namespace lockstep::apps {
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

/// The state file of the checkpoint `path`, or of the newest complete checkpoint in the directory
/// `path`; DIR:best is the best one.
std::string read_state(const fs::path& given) {
  const fs::path path = checkpoint::resolve_best(given);
  // An unreadable path is reported below, when it is read.
  std::error_code unreadable;
  if (fs::exists(path / checkpoint::kManifestName, unreadable))
    return checkpoint::read_small_file(path / checkpoint::kStateFile);
  for (const checkpoint::CheckpointInfo& info : checkpoint::list_checkpoints(path))
    if (info.complete()) return checkpoint::read_small_file(info.path / checkpoint::kStateFile);
  throw Error(ErrorCategory::checkpoint, path.string(),
              "expected a directory with a complete checkpoint",
              fs::exists(path, unreadable) ? "there is none in it"
              : unreadable                 ? unreadable.message()
                                           : "it does not exist");
}

model::Loss read_loss(const json& object) {
  model::Loss loss = model::parse_loss(json_member<std::string>(object, "loss"));
  for (const auto& [name, value] : model::loss_parameters(loss))
    *value = json_member<float>(object, std::string(name).c_str());
  return loss;
}

/// The model as the program stored it until the trainer stored the network.
ModelSource read_version_0_1(const json& model) {
  return {.name = json_member<std::string>(model, "name"),
          .description = json_member<std::string>(model, "description"),
          .input_shape = json_member<model::Shape>(model, "input_shape"),
          .outputs = json_member<std::int64_t>(model, "outputs"),
          .loss = read_loss(model)};
}

ModelSource read_stored_network(const json& configuration, const std::string& where) {
  if (!configuration.contains(strategy::kNetworkKey))
    throw Error(ErrorCategory::checkpoint, where,
                "expected a checkpoint that describes its network",
                "this one does not: the network has layers of its own, or a loss, which only the "
                "program that "
                "trained it can build, or an earlier version of the library wrote it");
  const auto stored = json_member<json>(configuration, strategy::kNetworkKey);
  ModelSource source{
      .name = where,
      .description = dump_json(json(json_member<json::object_t>(stored, "description"))),
      .loss = read_loss(stored),
      .losses = stored.value("losses", std::int64_t{1})};
  const model::Network network = model::network_from_json(source.description, where);
  source.input_shape = network.input_shape();
  source.outputs = model::row_width(source.loss, network.output_shape());
  return source;
}

/// "images imagenet-train, 2 maps", as the trainer stored it.
std::string text_of_preparation(const json& configuration) {
  const auto text = json_member<std::string>(configuration, strategy::kPreparationKey);
  return text.starts_with(", ") ? text.substr(2) : text;
}

}  // namespace

model::Network ModelSource::make() const {
  if (description.empty())
    return inputs.empty() ? zoo::make(name, input_shape, outputs)
                          : zoo::make(name, inputs, outputs);
  return model::network_from_json(description, name, {.input = input_shape, .classes = outputs});
}

nlohmann::json ModelSource::to_json() const {
  json model = {{"name", name}, {"images", images}};
  if (!input_feature.empty())
    model.update({{"input_feature", input_feature}, {"stored_shape", stored_shape}});
  return model;
}

ModelSource ModelSource::of_configuration(const nlohmann::json& configuration,
                                          const std::string& where) {
  try {
    // A program that uses the library may store anything under this key.
    const json given = configuration.value(kKey, json::object());
    const json model = given.is_object() ? given : json::object();
    ModelSource source = model.contains("description") ? read_version_0_1(model)
                                                       : read_stored_network(configuration, where);
    if (model.contains("images"))
      source.images = parse_images(json_member<std::string>(model, "images"));
    if (model.contains("input_feature")) {
      source.input_feature = json_member<std::string>(model, "input_feature");
      source.stored_shape = json_member<model::Shape>(model, "stored_shape");
    }
    if (configuration.contains(strategy::kImageRecipeKey))
      source.test_images =
          data::ImageRecipe::from_json(json_member<json>(configuration, strategy::kImageRecipeKey));
    if (configuration.value(strategy::kMappedKey, json()) == true)
      source.mapped = text_of_preparation(configuration);
    return source;
  } catch (const std::invalid_argument& reason) {
    throw Error(ErrorCategory::checkpoint, where, "expected the description of a model",
                reason.what());
  }
}

ModelSource choose_model(const std::string& name, const data::SampleSpec& spec,
                         const model::Loss& loss, const std::string& images) {
  if (name.ends_with(".pt"))
    throw Error(ErrorCategory::input, "model", "expected the name of a network or a JSON file",
                fmt::format("got {}: a TorchScript file is for example_torch_trainer, or a program "
                            "like it (docs/libtorch.md)",
                            name));
  if (!name.ends_with(".json")) data::check_fixed_sizes(spec.inputs, "model " + name);
  // Two classes may be one logit.
  const std::int64_t outputs = spec.classes() == 0 ? spec.target_count()
                               : std::holds_alternative<model::BinaryCrossentropy>(loss)
                                   ? 1
                                   : spec.classes();
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
  if (name.ends_with(".json")) source.description = read_description(name);
  return source;
}

ModelSource model_of_checkpoint(const strategy::Strategy& strategy, const fs::path& path) {
  const auto read = [&] { return strategy.is_chief() ? read_state(path) : std::string{}; };
  const std::string state = checkpoint::on_every_rank(strategy.ranks(), read).front();
  const std::string where = (path / checkpoint::kStateFile).string();
  return ModelSource::of_configuration(
      *checkpoint::parse_training_state(state, where).configuration, where);
}

}  // namespace lockstep::apps
