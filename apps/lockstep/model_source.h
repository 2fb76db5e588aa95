// Where a command gets its network from: a name, a file, or what a checkpoint remembers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lockstep/data/sample.h"
#include "lockstep/model/loss.h"
#include "lockstep/model/network.h"
#include "lockstep/strategy/strategy.h"

namespace lockstep::apps {

/// A network, and enough to make it again.
struct ModelSource {
  static constexpr const char* kKey = "model";  ///< its place in the configuration that a checkpoint keeps

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

/// The network that `--model` names, for data of `spec`. Throws Error (input).
ModelSource choose_model(const std::string& name, const data::SampleSpec& spec, const std::string& loss,
                         double label_smoothing = 0);

/// "sparse-categorical-crossentropy" or "mean-squared-error". Throws Error (input) that lists them.
model::Loss parse_loss(const std::string& name, double label_smoothing = 0);

/// The model of the checkpoints in `path`, or of the one checkpoint that `path` is, as the chief reads it. Throws Error
/// (checkpoint). Collective.
ModelSource model_of_checkpoint(const strategy::Strategy& strategy, const std::filesystem::path& path);

}  // namespace lockstep::apps
