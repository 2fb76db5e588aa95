#include "apps/lockstep/model_source.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/enum_names.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/agreement.h"
#include "lockstep/checkpoint/directory.h"
#include "lockstep/model/network_json.h"
#include "lockstep/model/zoo/zoo.h"

namespace lockstep::apps {
namespace {

namespace fs = std::filesystem;
constexpr auto kLosses = enum_names<LossKind>(
    {{LossKind::sparse_categorical_crossentropy, "sparse-categorical-crossentropy"},
     {LossKind::sparse_categorical_crossentropy, "cross-entropy"},
     {LossKind::mean_squared_error, "mean-squared-error"},
     {LossKind::mean_squared_error, "mse"}});

std::string read_description(const fs::path& file) {
  try {
    return checkpoint::read_small_file(file);
  } catch (const Error& error) {
    throw Error(ErrorCategory::input, "model",
                "expected the name of a network or a JSON file that can be read", error.what());
  }
}

/// The state file of the checkpoint `path`, or of the newest complete checkpoint in the directory
/// `path`.
std::string read_state(const fs::path& path) {
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

}  // namespace

model::Network ModelSource::make() const {
  if (description.empty()) return zoo::make(name, input_shape, outputs);
  return model::network_from_json(description, name, {.input = input_shape, .classes = outputs});
}

nlohmann::json ModelSource::to_json() const {
  return {{"name", name},
          {"description", description},
          {"input_shape", input_shape},
          {"outputs", outputs},
          {"loss", kLosses.name(loss.kind)},
          {"label_smoothing", loss.label_smoothing},
          {"images", to_string(images)}};
}

ModelSource ModelSource::from_json(const nlohmann::json& json, const std::string& where) {
  try {
    return {.name = json.at("name").get<std::string>(),
            .description = json.at("description").get<std::string>(),
            .input_shape = json.at("input_shape").get<model::Shape>(),
            .outputs = json.at("outputs").get<std::int64_t>(),
            .loss = {.kind = parse_loss(json.at("loss").get<std::string>()),
                     .label_smoothing = json.at("label_smoothing").get<double>()},
            .images = parse_images(json.value("images", "none"))};
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCategory::checkpoint, where,
                "expected a model description written by `lockstep train`", error.what());
  }
}

ModelSource choose_model(const std::string& name, const data::SampleSpec& spec,
                         const LossChoice& loss, ImagePreparation images) {
  ModelSource source{.name = name,
                     .description = {},
                     .input_shape = spec.shape,
                     .outputs = spec.classes > 0 ? spec.classes : spec.targets,
                     .loss = loss,
                     .images = images};
  if (name.ends_with(".json")) source.description = read_description(name);
  return source;
}

LossKind parse_loss(std::string_view name) { return kLosses.parse("loss", name); }

model::Loss LossChoice::loss() const {
  if (kind == LossKind::mean_squared_error) return model::MeanSquaredError{};
  return model::SparseCategoricalCrossentropy{.label_smoothing =
                                                  static_cast<float>(label_smoothing)};
}

ModelSource model_of_checkpoint(const strategy::Strategy& strategy, const fs::path& path) {
  const auto read = [&] { return strategy.is_chief() ? read_state(path) : std::string{}; };
  const std::string state = checkpoint::on_every_rank(strategy.ranks(), read).front();
  const std::string where = (path / checkpoint::kStateFile).string();
  return ModelSource::from_json(
      checkpoint::parse_training_state(state, where)
          .configuration->value(ModelSource::kKey, nlohmann::json::object()),
      where);
}

}  // namespace lockstep::apps
