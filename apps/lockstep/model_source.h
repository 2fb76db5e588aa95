// The network of a command: from a name, a JSON file, or a checkpoint; of `evaluate` and `predict` with its parameters.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/lockstep/arguments.h"
#include "lockstep/data/sample.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/strategy/trainer.h"

namespace lockstep::apps {

/// Everything that is needed to construct a network.
struct ModelSource {
  static constexpr const char* kKey = "model";  ///< its key in the configuration that checkpoints store

  std::string name;         ///< as given: "cnn", "net.json"
  std::string description;  ///< JSON text of a file; empty for a named network
  model::Shape input_shape;
  std::int64_t outputs = 0;  ///< classes, or targets of a regression
  std::string loss = "sparse-categorical-crossentropy";
  double label_smoothing = 0;
  std::string images = "none";  ///< how images were prepared (--images)

  model::Network make() const;
  nlohmann::json to_json() const;
  /// `where` is for the message of Error (checkpoint).
  static ModelSource from_json(const nlohmann::json& json, const std::string& where);
};

/// The network `name` (the value of --model) for samples of `spec`. Throws Error (input).
ModelSource choose_model(const std::string& name, const data::SampleSpec& spec, const std::string& loss,
                         double label_smoothing = 0);

/// Parses "sparse-categorical-crossentropy" or "mean-squared-error". Throws Error (input).
model::Loss parse_loss(const std::string& name, double label_smoothing = 0);

/// The model of the checkpoint `path`, or of the newest checkpoint in the directory `path`. The chief reads it. Throws
/// Error (checkpoint). Collective.
ModelSource model_of_checkpoint(const strategy::Strategy& strategy, const std::filesystem::path& path);

struct RestoredArguments {
  std::string checkpoint;
  DataArguments data;
  PlaceArguments place;
  OutputArguments output;
  std::string precision = "float32";
};
void add_restored_options(CLI::App& command, RestoredArguments& arguments);

/// A trained model on its replicas, and the batched data set in record order.
struct Restored {
  std::unique_ptr<strategy::Strategy> strategy;
  ModelSource source;
  data::Dataset dataset;
  std::unique_ptr<strategy::Trainer> trainer;
  checkpoint::RestoredCheckpoint checkpoint;
};
/// Loads the checkpoint and opens the data set. Throws Error. Collective.
Restored restore(job::Session& session, const RestoredArguments& arguments);

}  // namespace lockstep::apps
